package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/redis/go-redis/v9"
)

// unlinkedWindow is how many windows ago the window was that a sync removes.
const unlinkedWindow = 3

// Blocklists implements [qos.ClusterStore]. An error that comes with lists is about the
// removal of an old window.
func (s *Store) Blocklists(ctx context.Context, limits *qos.ClusterLimits, now time.Time) (*qos.Blocklists, error) {
	window, weight := limits.WindowAt(now)
	lists := &qos.Blocklists{}
	if limits.Any() {
		r := &reader{store: s, limits: limits, weight: weight, current: newCounts(window), previous: newCounts(window - 1)}
		if err := r.read(ctx); err != nil {
			return nil, err
		}
		lists = limits.Blocklists(now, &r.current.ClusterCounts, &r.previous.ClusterCounts)
	}
	if err := s.unlink(ctx, limits, window-unlinkedWindow); err != nil {
		return lists, fmt.Errorf("remove an old window: %w", err)
	}
	return lists, nil
}

// unlink removes the keys of a window, one by one, since they may be in several slots.
func (s *Store) unlink(ctx context.Context, limits *qos.ClusterLimits, window int64) error {
	pipe := s.client.Pipeline()
	kinds := []string{ipKind, subnetKind, hostKind, totalKind}
	if limits.RequiredIPs > 1 {
		kinds = append(kinds, uniqueKind)
	}
	for _, kind := range kinds {
		pipe.Unlink(ctx, s.key(kind, window))
	}
	_, err := pipe.Exec(ctx)
	return err
}

// reader collects what decides about the keys that may be above a limit.
type reader struct {
	store             *Store
	limits            *qos.ClusterLimits
	weight            float64 // of previous
	current, previous *counts
}

// counts is a part of what one window has.
type counts struct {
	window int64
	qos.ClusterCounts
}

func newCounts(window int64) *counts {
	return &counts{window, qos.ClusterCounts{
		IPs:       make(map[string]float64),
		Subnets:   make(map[string]float64),
		Hosts:     make(map[string]float64),
		UniqueIPs: make(map[string]float64),
	}}
}

func (c *counts) of(kind string) map[string]float64 {
	switch kind {
	case ipKind:
		return c.IPs
	case subnetKind:
		return c.Subnets
	case hostKind:
		return c.Hosts
	default:
		return c.UniqueIPs
	}
}

func (r *reader) read(ctx context.Context) error {
	b := r.batch()
	if r.limits.MaxIPRate > 0 {
		b.ranges(ctx, ipKind, r.limits.IPThreshold())
	}
	if r.limits.MaxSubnetRate > 0 {
		b.ranges(ctx, subnetKind, r.limits.SubnetThreshold())
	}
	if r.limits.MaxHostRatio > 0 {
		b.totals(ctx)
		if r.limits.Compat {
			b.ranges(ctx, hostKind, 0)
		}
	}
	if err := b.exec(ctx); err != nil {
		return err
	}
	if !r.limits.Compat {
		if err := r.readHosts(ctx); err != nil {
			return err
		}
	}
	return r.readRest(ctx)
}

// readHosts reads the hosts that may be in violation, now that the total is known.
func (r *reader) readHosts(ctx context.Context) error {
	total := qos.Sliding(r.current.Total, r.previous.Total, r.weight)
	if r.limits.MaxHostRatio == 0 || total < r.limits.MinTotal() {
		return nil
	}
	b := r.batch()
	b.ranges(ctx, hostKind, r.limits.MaxHostRatio*total)
	return b.exec(ctx)
}

// readRest reads how many addresses the subnets have shown that are above their limit,
// and, of keys that were found in one window, the hits in the other. With Compat
// these count as 0, as in connect-qos.
func (r *reader) readRest(ctx context.Context) error {
	b := r.batch()
	if !r.limits.Compat {
		for _, kind := range []string{ipKind, subnetKind, hostKind} {
			b.scores(ctx, kind, r.current, missing(r.previous.of(kind), r.current.of(kind)))
			b.scores(ctx, kind, r.previous, missing(r.current.of(kind), r.previous.of(kind)))
		}
	}
	if r.limits.MaxSubnetRate > 0 && r.limits.RequiredIPs > 1 {
		subnets := append(missing(r.current.Subnets, nil), missing(r.previous.Subnets, r.current.Subnets)...)
		b.scores(ctx, uniqueKind, r.current, subnets)
		b.scores(ctx, uniqueKind, r.previous, subnets)
	}
	return b.exec(ctx)
}

// missing are the keys of a that are not in b.
func missing(a, b map[string]float64) []string {
	var keys []string
	for key := range a {
		if _, ok := b[key]; !ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// batch is commands whose replies go to the counts.
type batch struct {
	*reader
	pipe  redis.Pipeliner
	takes []func() error // the replies
}

func (r *reader) batch() *batch { return &batch{reader: r, pipe: r.store.client.Pipeline()} }

// exec sends the commands, if there are any, and takes the replies.
func (b *batch) exec(ctx context.Context) error {
	if len(b.takes) == 0 {
		return nil
	}
	if _, err := b.pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for _, take := range b.takes {
		if err := take(); err != nil {
			return err
		}
	}
	return nil
}

// ranges asks for all keys whose sliding sum may reach the threshold: one of the two
// windows must have half of it. connect-qos asks for less in the previous window, and
// is content with what it finds.
func (b *batch) ranges(ctx context.Context, kind string, threshold float64) {
	least := max(1, math.Floor(threshold/2))
	b.scoresFrom(ctx, kind, b.current, least)
	if !b.limits.Compat {
		least = max(1, math.Floor(threshold/2/b.weight))
	}
	b.scoresFrom(ctx, kind, b.previous, least)
}

func (b *batch) scoresFrom(ctx context.Context, kind string, c *counts, least float64) {
	reply := b.pipe.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
		Key: b.store.key(kind, c.window), ByScore: true,
		Start: strconv.FormatFloat(least, 'f', -1, 64), Stop: "+inf",
	})
	b.takes = append(b.takes, func() error {
		for _, z := range reply.Val() {
			if member, ok := z.Member.(string); ok {
				c.of(kind)[member] = z.Score
			}
		}
		return reply.Err()
	})
}

// scores asks for certain keys.
func (b *batch) scores(ctx context.Context, kind string, c *counts, keys []string) {
	for len(keys) > 0 {
		n := min(len(keys), partSize)
		part := keys[:n]
		reply := b.pipe.ZMScore(ctx, b.store.key(kind, c.window), part...)
		b.takes = append(b.takes, func() error {
			scores, err := reply.Result()
			if err == nil && len(scores) != len(part) {
				err = fmt.Errorf("%d scores for %d keys", len(scores), len(part))
			}
			if err != nil {
				return err
			}
			for i, key := range part {
				c.of(kind)[key] = scores[i] // 0 for a key that is not there
			}
			return nil
		})
		keys = keys[n:]
	}
}

func (b *batch) totals(ctx context.Context) {
	for _, c := range []*counts{b.current, b.previous} {
		reply := b.pipe.Get(ctx, b.store.key(totalKind, c.window))
		b.takes = append(b.takes, func() error {
			total, err := reply.Float64()
			if errors.Is(err, redis.Nil) {
				return nil
			}
			c.Total = total
			return err
		})
	}
}

func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
