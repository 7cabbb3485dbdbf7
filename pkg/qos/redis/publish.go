package redis

import (
	"context"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/redis/go-redis/v9"
)

const (
	// partSize is how many keys one script adds: Redis does nothing else meanwhile.
	partSize = 500
	// keptWindows is after how many windows a key expires.
	keptWindows = 4
)

// addPart adds hits to a sorted set, or to a number, unless its mark is there. KEYS are
// the sum and the mark, ARGV the milliseconds until they expire, the command, and its
// arguments: pairs for ZINCRBY.
const addPart = `
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
if ARGV[2] == 'INCRBY' then
	redis.call('INCRBY', KEYS[1], ARGV[3])
else
	for i = 3, #ARGV, 2 do redis.call('ZINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], '', 'PX', ARGV[1])
return 1`

// Publish implements [qos.ClusterStore].
func (s *Store) Publish(ctx context.Context, limits *qos.ClusterLimits, b *qos.Batch) error {
	pipe := s.client.Pipeline()
	expiry := max(keptWindows*limits.Window.Milliseconds(), 1)
	kinds := []struct {
		name string
		hits []qos.Hits
	}{{ipKind, b.IPs}, {subnetKind, b.Subnets}, {hostKind, b.Hosts}}
	for _, kind := range kinds {
		key := s.key(kind.name, b.Window)
		if limits.Compat {
			for _, h := range kind.hits {
				pipe.ZIncrBy(ctx, key, float64(h.N), h.Key)
			}
		} else {
			addHits(ctx, pipe, key, b.ID, kind.hits, expiry)
		}
	}
	if key := s.key(totalKind, b.Window); b.Total > 0 && limits.Compat {
		pipe.IncrBy(ctx, key, b.Total)
	} else if b.Total > 0 {
		pipe.Eval(ctx, addPart, []string{key, markKey(key, b.ID, 0)}, expiry, "INCRBY", b.Total)
	}
	for _, kind := range kinds {
		if len(kind.hits) > 0 {
			trim(ctx, pipe, s.key(kind.name, b.Window), limits)
		}
	}
	s.publishUnique(ctx, pipe, limits, b, expiry)
	_, err := pipe.Exec(ctx)
	return err
}

// addHits adds hits part by part.
func addHits(ctx context.Context, pipe redis.Pipeliner, key, batch string, hits []qos.Hits, expiry int64) {
	for part := 0; len(hits) > 0; part++ {
		n := min(len(hits), partSize)
		args := make([]any, 0, 2+2*n)
		args = append(args, expiry, "ZINCRBY")
		for _, h := range hits[:n] {
			args = append(args, h.N, h.Key)
		}
		pipe.Eval(ctx, addPart, []string{key, markKey(key, batch, part)}, args...)
		hits = hits[n:]
	}
}

// publishUnique raises the number of addresses of each subnet to what this node has
// seen. Doing it twice changes nothing.
func (s *Store) publishUnique(ctx context.Context, pipe redis.Pipeliner, limits *qos.ClusterLimits, b *qos.Batch, expiry int64) {
	key := s.key(uniqueKind, b.UniqueWindow)
	for hits := b.UniqueIPs; len(hits) > 0; {
		n := min(len(hits), partSize)
		members := make([]redis.Z, n)
		for i, h := range hits[:n] {
			members[i] = redis.Z{Score: float64(h.N), Member: h.Key}
		}
		pipe.ZAddGT(ctx, key, members...)
		hits = hits[n:]
	}
	if len(b.UniqueIPs) > 0 {
		trim(ctx, pipe, key, limits)
		if !limits.Compat {
			pipe.PExpire(ctx, key, duration(expiry))
		}
	}
}

// trim keeps the MaxTrackedActors keys with the most hits.
func trim(ctx context.Context, pipe redis.Pipeliner, key string, limits *qos.ClusterLimits) {
	pipe.ZRemRangeByRank(ctx, key, 0, -int64(limits.MaxTrackedActors)-1)
}
