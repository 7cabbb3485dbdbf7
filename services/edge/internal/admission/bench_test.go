package admission

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
)

// benchGate returns a gate and a coordinator that gives one answer, on the
// clock of the machine.
func benchGate(b *testing.B, reply wire.AdmitReply) *Gate {
	b.Helper()
	server, err := embed.Start(embed.Options{})
	require.NoError(b, err)
	b.Cleanup(server.Stop)
	dial := func(name string) *bus.Conn {
		conn, err := bus.Connect(bus.Options{
			InProcess: server.InProcess(), Name: name, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(b, err)
		b.Cleanup(conn.Close)
		return conn
	}
	co := &coordinator{t: b, conn: dial("coordinator")}
	service, err := bus.NewService(co.conn, "coordinator", "1.0.0", func(_ string, err error) { b.Error(err) })
	require.NoError(b, err)
	require.NoError(b, bus.Handle(service, "admit", wire.SubjectAdmit, func(c *admitCall) { c.Reply(reply) }))
	require.NoError(b, bus.Handle(service, "release", wire.SubjectRelease, func(c *releaseCall) { c.Reply(wire.ReleaseReply{}) }))
	require.NoError(b, bus.Handle(service, "status", wire.SubjectStatus, func(c *statusCall) { c.Reply(wire.StatusReply{}) }))

	gate := New(Options{
		EdgeID: "edge-1", Conn: dial("edge"),
		AdmitTimeout: time.Second, PendingTimeout: time.Second, PollInterval: time.Second, Lease: time.Second,
		Limits: testLimits, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, gate.Start())
	b.Cleanup(func() { gate.Stop(context.Background()) })
	return gate
}

func BenchmarkMemoRefusal(b *testing.B) {
	gate := benchGate(b, rejected(100))
	group := gate.groups.pin(groupA)
	group.mu.Lock()
	group.fullUntil = time.Now().Add(time.Hour)
	group.mu.Unlock()
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, outcome := gate.Admit(ctx, groupA, time.Now(), nil); outcome.Reason != QueueFull {
			b.Fatal(outcome)
		}
	}
}

func BenchmarkAdmitRelease(b *testing.B) {
	gate := benchGate(b, admitted)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		ticket, outcome := gate.Admit(ctx, groupA, time.Now(), nil)
		if outcome.Reason != Admitted {
			b.Fatal(outcome)
		}
		ticket.Done()
	}
}

// Many requests at once, whose releases share messages.
func BenchmarkAdmitReleaseParallel(b *testing.B) {
	gate := benchGate(b, admitted)
	ctx := b.Context()
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ticket, outcome := gate.Admit(ctx, groupA, time.Now(), nil)
			if outcome.Reason != Admitted {
				b.Error(outcome)
				return
			}
			ticket.Done()
		}
	})
}
