package pgstore_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/pgstore"
)

// benchmarkDay is when all denials of the benchmarks happen.
var benchmarkDay = time.Date(2030, 3, 10, 12, 0, 0, 0, time.UTC)

// flood makes denials of 1,000 ranges: every second address is new that day.
type flood struct {
	random *rand.Rand
	seen   []netip.Addr
	n      int
}

func newFlood() *flood { return &flood{random: rand.New(rand.NewPCG(1, 2))} }

func (f *flood) next() wire.DeniedAddress {
	f.n++
	var ip netip.Addr
	if f.n%2 == 0 && len(f.seen) > 0 {
		ip = f.seen[f.random.IntN(len(f.seen))]
	} else {
		group, host := f.random.IntN(1000), f.random.Uint32()
		ip = netip.AddrFrom4([4]byte{11 + byte(group>>8), byte(group), byte(host >> 8), byte(host)})
		f.seen = append(f.seen, ip)
	}
	at := benchmarkDay.Add(time.Duration(f.n) * time.Millisecond / 100)
	return wire.DeniedAddress{IP: ip, Group: netip.PrefixFrom(ip, 16).Masked(), Count: 1, First: at, Last: at, Path: "/download/file.iso"}
}

// batch makes messages of 100 addresses.
func (f *flood) batch(first uint64, messages int) []store.Record {
	records := make([]store.Record, messages)
	for i := range records {
		seq := first + uint64(i)
		addresses := make([]wire.DeniedAddress, 100)
		for j := range addresses {
			addresses[j] = f.next()
		}
		records[i] = store.Record{Seq: seq, At: addresses[99].Last, Edge: "edge-1", Denied: wire.Denied{
			OutboxID: "box", Seq: seq, Reason: wire.DeniedQueueFull, Addresses: addresses,
		}}
	}
	return records
}

// BenchmarkApply is the projector's work: batches of messages of 100 addresses,
// half of them new that day, of 1,000 ranges that are all blocked and extended
// before long; against one call for each denial of a function that does what
// cork-cache-n-queue's does, from four callers. An operation is one denial.
func BenchmarkApply(b *testing.B) {
	for _, messages := range []int{100, 1000} {
		b.Run(fmt.Sprintf("batched/messages=%d", messages), func(b *testing.B) { benchmarkBatches(b, messages) })
	}
	b.Run("single", benchmarkSingle)
}

func benchmarkBatches(b *testing.B, messages int) {
	b.Helper()
	s := pgstore.New(newPool(b), store.DefaultSettings(), nil)
	ctx := b.Context()
	epoch, ok, err := s.Lead(ctx, "the benchmark", time.Hour)
	require.NoError(b, err)
	require.True(b, ok)
	require.NoError(b, s.Reset(ctx, epoch, benchmarkDay))
	at := store.Checkpoint{Created: benchmarkDay}
	f := newFlood()
	b.ReportAllocs()
	b.ResetTimer()
	var took time.Duration
	for done := 0; done < b.N; done += messages * 100 {
		b.StopTimer()
		records := f.batch(at.Seq+1, messages)
		next := store.Checkpoint{Created: benchmarkDay, Seq: at.Seq + uint64(messages)}
		b.StartTimer()
		begin := time.Now()
		_, err := s.Apply(ctx, epoch, at, store.Batch{Records: records, Next: next})
		took += time.Since(begin)
		require.NoError(b, err)
		at = next
	}
	b.ReportMetric(float64(at.Seq*100)/took.Seconds(), "denials/s")
}

const recordDenial = `
CREATE FUNCTION record_denial(p_ip text, p_group text, p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_day date := (p_now AT TIME ZONE 'UTC')::date;
BEGIN
	INSERT INTO ip_denial_count AS c (ip, ip_group, day, count) VALUES (p_ip, p_group, v_day, 1)
	ON CONFLICT (ip, day) DO UPDATE SET count = c.count + 1;
	IF (SELECT count(*) FROM ip_denial_count WHERE ip = p_ip AND day > v_day - 14 AND day <= v_day AND count >= 25) >= 5 THEN
		INSERT INTO ip_block AS b (ip, blocked_until) VALUES (p_ip, p_now + interval '30 days')
		ON CONFLICT (ip) DO UPDATE SET blocked_until = greatest(b.blocked_until, excluded.blocked_until);
	END IF;
	IF (SELECT count(*) FROM ip_denial_count WHERE ip_group = p_group AND day = v_day) > 25 THEN
		INSERT INTO ip_group_block AS b (ip_group, blocked_until) VALUES (p_group, p_now + interval '24 hours')
		ON CONFLICT (ip_group) DO UPDATE SET blocked_until = greatest(b.blocked_until, excluded.blocked_until);
	END IF;
END $$`

func benchmarkSingle(b *testing.B) {
	pool := newPool(b)
	ctx := b.Context()
	// The seed's tables have no triggers.
	_, err := pool.Exec(ctx, recordDenial+`; ALTER TABLE ip_block DISABLE TRIGGER USER; ALTER TABLE ip_group_block DISABLE TRIGGER USER`)
	require.NoError(b, err)
	f := newFlood()
	denials := make([]wire.DeniedAddress, b.N)
	for i := range denials {
		denials[i] = f.next()
	}
	b.ReportAllocs()
	b.ResetTimer()
	begin := time.Now()
	var next atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				d := denials[i]
				if _, err := pool.Exec(ctx, "SELECT record_denial($1, $2, $3)", d.IP.String(), d.Group.String(), d.Last); err != nil {
					b.Errorf("record_denial: %v", err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "denials/s")
}
