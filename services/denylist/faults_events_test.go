package denylist

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/memstore"
)

// TestMalformedEvents are moved aside, and do not stop the others.
func TestMalformedEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	st := memstore.New(s.config().Denylist.settings(), nil)
	s.untilReady(s.start(s.config(), Deps{store: st}))
	o := s.outbox("o1")
	good := o.event(denial{"203.0.113.7", 3, time.Now()})
	wrongReason := good
	wrongReason.Data.Reason = wire.DeniedQueueTimeout
	text, err := json.Marshal(wrongReason)
	require.NoError(t, err)
	for _, payload := range [][]byte{nil, []byte("{}"), []byte("\x00\xff"), []byte(`{"specversion":"1.0"`), text, make([]byte, wire.MaxDeniedBytes+1)} {
		require.NoError(t, bus.PublishAcked(s.ctx(), s.conn, denySubject, payload, ""))
	}
	o.send(good)
	s.until("the good one counts", func() bool { return s.inForce(wire.ScopeIP, "203.0.113.7") })
	aside := st.Quarantined()
	require.Len(t, aside, 6)
	for _, q := range aside {
		require.NotEmpty(t, q.Why)
		require.Equal(t, denySubject, q.Subject)
		require.LessOrEqual(t, len(q.Payload), store.MaxPayload)
	}
}

// TestMonitor decides and tells, and enforces nothing.
func TestMonitor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.untilReady(s.start(s.config("CCNQ_QUEUE_DENYLIST_MODE=monitor"), Deps{Memory: true}))
	s.outbox("o1").deny(denial{"203.0.113.7", 3, time.Now()})
	s.until("told", func() bool { return len(s.changes(wire.TypeWouldBlock)) == 1 })
	require.Empty(t, s.changes(wire.TypeBlocked))
	s.until("the mark says so", func() bool { mark, ok := s.mark(); return ok && mark.Monitor && mark.IPs == 1 })
	reply, err := s.block(wire.BlockRequest{Target: "192.0.2.1", Seconds: 60})
	require.NoError(t, err)
	require.Contains(t, reply.Warning, "CCNQ_QUEUE_DENYLIST_MODE")
}

// TestFullStream fills the event stream: blocks still reach the edges, and are
// told once there is room.
func TestFullStream(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start(s.config("CCNQ_EVENTS_MAX_BYTES=1048576"), Deps{Memory: true})
	s.untilReady(d)
	for _, size := range []int{200 << 10, 100} {
		s.until("full", func() bool {
			return errors.Is(bus.PublishAcked(s.ctx(), s.conn, denySubject, make([]byte, size), ""), bus.ErrRefused)
		})
	}
	reply, err := s.block(wire.BlockRequest{Target: "192.0.2.1", Seconds: 3600})
	require.NoError(t, err)
	require.Contains(t, reply.Warning, "does not outlive a restart")
	s.until("blocked", func() bool { return s.inForce(wire.ScopeIP, "192.0.2.1") })
	s.until("and the operator is told why it lags", func() bool {
		ok, body := ready(t, d)
		require.True(t, ok, "it still works")
		return strings.Contains(body, "degraded: changes are not published")
	})
	_, err = bus.EnsureStream(s.ctx(), s.conn, bus.StreamSpec{
		Name: wire.StreamEvents, Subjects: []string{"ccnq.v1.events.denied.queue-full.*", "ccnq.v1.events.blocked.*"}, Direct: true,
		RefuseWhenFull: true,
	})
	require.NoError(t, err)
	s.until("told", func() bool { return len(s.changes(wire.TypeBlocked)) == 1 })
}

// TestStreamTooLarge says which setting is to blame.
func TestStreamTooLarge(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start(s.config("CCNQ_EVENTS_MAX_BYTES=1152921504606846976"), Deps{Memory: true})
	s.until("the operator is told", func() bool {
		_, err := s.block(wire.BlockRequest{Target: "192.0.2.1", Seconds: 60})
		_, body := ready(t, d)
		told := "CCNQ_EVENTS_MAX_BYTES 1152921504606846976"
		return err != nil && strings.Contains(err.Error(), told) && strings.Contains(body, told)
	})
}

func TestDisabled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start(s.config("CCNQ_QUEUE_DENYLIST_ENABLED=false"), Deps{})
	s.untilReady(d)
	_, err := s.block(wire.BlockRequest{Target: "192.0.2.1", Seconds: 60})
	require.ErrorIs(t, err, bus.ErrNoResponders)
}

func TestStopAtAnyTime(t *testing.T) {
	t.Parallel()
	d := New(Config{General: General{AdminAddr: "off"}}, Deps{Logger: slog.New(slog.DiscardHandler), Memory: true})
	require.NoError(t, d.Stop(t.Context()))
	require.Error(t, d.Start(t.Context()), "it has been stopped")
	require.NoError(t, d.Stop(t.Context()))
}
