package faults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/scrape"
)

// TestCoordinator_Killed: another answers, and nobody passes undecided for it.
// It runs before the parallel tests, alone: what a process that stands still for
// a second has been asked meanwhile passes undecided, rightly.
func TestCoordinator_Killed(t *testing.T) {
	s := start(t, patient)
	stream := s.drive(s.edges...)
	stream.more(t, 20)
	s.coordinators[0].Kill(t)
	stream.more(t, 50)
	require.True(t, s.limitsHold())
	stream.wellServed(t)
	require.Zero(t, s.sum("ccnq_queue_fail_open_total"), "the request asks once more and another answers")
	for _, e := range s.edges {
		require.Equal(t, "ok", e.Part(t, "queue"))
	}
	s.empty()
}

// TestCoordinator_Frozen: NATS goes on sending it its share until it notices;
// the others answer what they are asked, and what nobody answers passes.
func TestCoordinator_Frozen(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	stream := s.drive(s.edges...)
	stream.more(t, 20)
	s.coordinators[0].Freeze(t)
	stream.more(t, outage)
	await.True(t, "the limits hold without it", s.limitsHold)
	s.coordinators[0].Thaw(t)
	await.True(t, "it is ready again", func() bool { return s.coordinators[0].Ready(t) })
	s.comesBack()
	stream.wellServed(t)
	s.empty()
	// What was sent to it while it was frozen is over: it must not take places
	// for that when it goes on.
	repaired := 0.0
	for _, k := range s.coordinators {
		repaired += scrape.Get(t, k.Admin).Value(t, "ccnq_coordinator_repaired_total")
	}
	require.Less(t, repaired, outage/4.0, "places taken for requests that were over")
}

// TestCoordinator_AllFrozen is an outage like any other; thawed, they take
// nobody for dead whom they have not heard meanwhile.
func TestCoordinator_AllFrozen(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	each := func(do func(i int)) func() {
		return func() {
			for i := range s.coordinators {
				do(i)
			}
		}
	}
	s.outageOf(
		each(func(i int) { s.coordinators[i].Freeze(t) }),
		each(func(i int) { s.coordinators[i].Thaw(t) }),
	)
}
