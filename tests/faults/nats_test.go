package faults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

func TestNATS_StoppedAndBack(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.outageOf(func() { s.nats.Stop(t) }, func() { s.nats.Run(t) })
}

func TestNATS_FrozenAndBack(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.outageOf(func() { s.nats.Freeze(t) }, func() { s.nats.Thaw(t) })
}

// TestNATS_PlacesOutliveAnOutage: what is held when NATS goes is held when it
// comes back, though every lease has run out; what ends meanwhile is given
// back then.
func TestNATS_PlacesOutliveAnOutage(t *testing.T) {
	t.Parallel()
	s := start(t, patient)
	ip := s.newGroup()
	var held []*origin.Arrival
	var pending []*visitor.Pending
	for i := range maxServed {
		pending = append(pending, s.Send(t.Context(), visitor.Request{
			Edge: s.edges[i%2].URL, IP: ip(i + 1), Do: origin.DoHold,
		}))
		held = append(held, s.origin.Next(t))
	}
	s.nats.Kill(t)
	s.degraded()
	stream := s.drive(s.edges...)
	stream.more(t, 150) // 3 s, longer than a lease
	held[0].Release()
	require.Equal(t, 200, pending[0].Answer(t).Status)
	active, _ := s.of(ip(1))
	require.Equal(t, maxServed, active, "while edges cannot be heard none is taken for dead")

	s.nats.Run(t)
	await.Within(t, comeBack, "what ended meanwhile is given back", func() bool {
		active, _ := s.of(ip(1))
		return active == maxServed-1
	})
	s.comesBack()
	active, _ = s.of(ip(1))
	require.Equal(t, maxServed-1, active, "what is held is kept")
	for i := 1; i < maxServed; i++ {
		held[i].Release()
		require.Equal(t, 200, pending[i].Answer(t).Status)
	}
	stream.wellServed(t)
	s.empty()
}
