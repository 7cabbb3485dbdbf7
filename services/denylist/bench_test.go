package denylist

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

// benchStores are the services to measure.
func benchStores(b *testing.B, run func(s *site, start func() *Service)) {
	b.Helper()
	b.Run("memory", func(b *testing.B) {
		s := newSite(b)
		run(s, func() *Service { return s.start(s.benchConfig(), Deps{Memory: true}) })
	})
	b.Run("postgres", func(b *testing.B) {
		s := newSite(b)
		environ, _ := s.database()
		run(s, func() *Service { return s.start(s.benchConfig(environ...), Deps{}) })
	})
}

// benchConfig has the seed's thresholds, and says little.
func (s *site) benchConfig(environ ...string) Config {
	return s.config(append(environ, "CCNQ_QUEUE_DENYLIST_DAILY_THRESHOLD=25", "CCNQ_QUEUE_DENYLIST_EXCEED_THRESHOLD=5",
		"CCNQ_QUEUE_DENYLIST_RANGE_IP_THRESHOLD=25", "CCNQ_QUEUE_DENYLIST_PRUNE_RETENTION_MS=2592000000")...)
}

const perMessage = 100

// denials publishes events of 100 addresses each, from 1,000 ranges, half of
// them new that day.
func (o *outbox) denials(b *testing.B, messages int) {
	b.Helper()
	puts := make([]bus.Put, 0, messages)
	n := 0
	for range messages {
		o.seq++
		data := wire.Denied{OutboxID: o.id, Seq: o.seq, Reason: wire.DeniedQueueFull, Addresses: make([]wire.DeniedAddress, perMessage)}
		now := time.Now()
		for i := range data.Addresses {
			address := n
			if i%2 == 1 {
				address = n / 2 // one that came before
			}
			n++
			group, host := address%1_000, address/1_000
			ip := netip.AddrFrom4([4]byte{byte(10 + host/250), byte(group / 250), byte(group % 250), byte(1 + host%250)})
			data.Addresses[i] = wire.DeniedAddress{
				IP: ip, Group: netip.PrefixFrom(ip, 24).Masked(), Count: 1, First: now, Last: now, Path: "/papers/1.pdf",
			}
		}
		id := fmt.Sprintf("%s-%d", o.id, o.seq)
		payload, err := json.Marshal(wire.NewEvent(id, wire.EdgeSource("edge-1"), wire.TypeDenied, "queue-full", now, data))
		require.NoError(b, err)
		puts = append(puts, bus.Put{Subject: denySubject, Data: payload, ID: id})
	}
	for len(puts) > 0 {
		page := puts[:min(len(puts), 500)]
		results, err := bus.PutAll(o.ctx(), o.conn, page)
		require.NoError(b, err)
		for _, r := range results {
			require.NoError(b, r.Err)
		}
		puts = puts[len(page):]
	}
}

// untilMetric waits until a service has counted so far.
func (s *site) untilMetric(d *Service, name string, value float64) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return metric(s.t, d, name) >= value }, 10*patience, tick, name)
}

const applied = "ccnq_denylist_denials_total"

// processor returns the processor time of this process, which has NATS in it
// and Postgres not.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// report prints what so many denials took since the start.
func report(b *testing.B, denials float64, before time.Duration) {
	b.Helper()
	b.ReportMetric(denials/b.Elapsed().Seconds(), "denials/s")
	b.ReportMetric(denials/(processor(b)-before).Seconds(), "denials/cpu-s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkProjector measures from the events in the stream to the tables. It
// has the start of the service in it.
func BenchmarkProjector(b *testing.B) {
	benchStores(b, func(s *site, start func() *Service) {
		b := s.t.(*testing.B)
		const messages = 2_000
		o := s.outbox("o1")
		d := start()
		s.untilReady(d)
		require.NoError(b, d.Stop(s.ctx()))
		o.denials(b, messages)
		before := processor(b)
		b.ReportAllocs()
		b.ResetTimer()
		d = start()
		s.untilMetric(d, applied, messages*perMessage)
		b.StopTimer()
		report(b, messages*perMessage, before)
	})
}

// BenchmarkRebuild measures a rebuild of 1,000,000 denials.
func BenchmarkRebuild(b *testing.B) {
	benchStores(b, func(s *site, start func() *Service) {
		b := s.t.(*testing.B)
		const messages = 10_000
		d := start()
		s.untilReady(d)
		s.outbox("o1").denials(b, messages)
		s.untilMetric(d, applied, messages*perMessage)
		before := processor(b)
		b.ReportAllocs()
		b.ResetTimer()
		s.until("begun", func() bool { // on a busy machine the service may just have lost its term
			_, err := ask[wire.RebuildRequest, wire.RebuildReply](s, wire.SubjectRebuild, wire.RebuildRequest{})
			return err == nil
		})
		s.untilMetric(d, "ccnq_denylist_rebuilds_total", 1)
		b.StopTimer()
		b.ReportMetric(b.Elapsed().Seconds(), "s/rebuild")
		report(b, messages*perMessage, before)
	})
}

// BenchmarkPublish measures from a block in the tables to the bucket.
func BenchmarkPublish(b *testing.B) {
	benchStores(b, func(s *site, start func() *Service) {
		b := s.t.(*testing.B)
		s.untilReady(start())
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n++
			target := fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
			_, err := s.block(wire.BlockRequest{Target: target, Seconds: 3600})
			require.NoError(b, err)
			for !s.inForce(wire.ScopeIP, target) {
				continue
			}
		}
	})
}
