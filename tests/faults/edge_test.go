package faults

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// reclaimed is within how much time a dead edge's places come back: its lease,
// and the fifth of one until somebody looks.
const reclaimed = lease + lease/5

// TestF17_WithAnEdgeKilled is the second half of F17: its five places come back
// in the stated time, and until then the sum stays within the limit.
func TestF17_WithAnEdgeKilled(t *testing.T) {
	t.Parallel()
	const requests, served, inFlight = 200, 10, 5
	s := start(t, patient)
	s.limitsOfTen()
	ip := s.newGroup()
	group := visitor.Group(ip(1))

	// Five at the edge that will be killed, and they do not end by themselves.
	for i := range inFlight {
		s.Send(t.Context(), visitor.Request{Edge: s.edges[1].URL, IP: ip(1000 + i), Do: origin.DoHold})
		s.origin.Next(t)
	}
	answers := make([]visitor.Answer, requests)
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			answers[i] = s.Ask(t.Context(), visitor.Request{
				Edge: s.edges[i%2].URL, IP: ip(i + 1), Do: origin.DoTake + "200ms",
			})
		})
	}
	await.True(t, "the group is busy", func() bool { return s.origin.Max(group) == served })
	s.edges[1].Kill(t)
	all.Wait()

	counts := map[string]int{}
	for i, a := range answers {
		switch {
		case a.Status == http.StatusOK && a.Err == nil:
			counts["served"]++
		case a.Status == http.StatusTooManyRequests:
			counts["refused"]++
		case i%2 == 1:
			counts["lost with their edge"]++
		default:
			require.Fail(t, "a request of the other edge failed", "%d %v", a.Status, a.Err)
		}
	}
	require.Equal(t, requests, counts["served"]+counts["refused"]+counts["lost with their edge"], "%v", counts)
	require.Equal(t, served, s.origin.Max(group), "requests at once, in all")

	await.Within(t, reclaimed+slack, "the dead edge's places come back", func() bool { return s.places("edge-1") == 0 })
	s.empty()
	// All ten places can be taken again, and no more.
	s.edges = s.edges[:1]
	s.origin.ForgetMax()
	for i := range served {
		s.Send(t.Context(), visitor.Request{Edge: s.edges[0].URL, IP: ip(i + 1), Do: origin.DoHold})
		s.origin.Next(t)
	}
	s.Send(t.Context(), visitor.Request{Edge: s.edges[0].URL, IP: ip(99), Do: origin.DoHold})
	await.True(t, "one more waits", func() bool {
		_, pending := s.of(ip(1))
		return pending == 1
	})
	require.Equal(t, served, s.origin.Max(group))
}

// TestEdge_Frozen: its places come back like a dead one's. When it goes on it
// tells what it holds, the one case in which the limit is exceeded, and then
// all is as it should be.
func TestEdge_Frozen(t *testing.T) {
	t.Parallel()
	s := start(t, patient)
	ip := s.newGroup()
	held := s.Send(t.Context(), visitor.Request{Edge: s.edges[1].URL, IP: ip(1), Do: origin.DoHold})
	arrival := s.origin.Next(t)
	s.edges[1].Freeze(t)
	await.Within(t, reclaimed+slack, "the frozen edge's places come back", func() bool {
		active, _ := s.of(ip(1))
		return active == 0
	})
	stream := s.drive(s.edges[0])
	stream.more(t, 50)
	s.edges[1].Thaw(t)
	await.Within(t, comeBack, "it tells what it holds", func() bool {
		active, _ := s.of(ip(1))
		return active == 1
	})
	s.comesBack()
	stream.wellServed(t)
	arrival.Release()
	require.Equal(t, 200, held.Answer(t).Status)
	s.empty()
}

// TestEdge_StopsOnSIGTERM with exit code 0, and leaves nothing in the store.
func TestEdge_StopsOnSIGTERM(t *testing.T) {
	t.Parallel()
	s := start(t, patient.With(cluster.Settings{"CCNQ_QUEUE_LEASE_MS": "600000"}))
	s.empty() // what the other edge was asked for meanwhile
	ip := s.newGroup()
	held := s.Send(t.Context(), visitor.Request{Edge: s.edges[1].URL, IP: ip(1), Do: origin.DoHold})
	arrival := s.origin.Next(t)
	s.edges[1].Terminate(t)
	await.True(t, "it accepts nobody any more", func() bool {
		return visitor.New(t).Ask(t.Context(), visitor.Request{Edge: s.edges[1].URL, IP: ip(2)}).Err != nil
	})
	arrival.Release()
	require.Equal(t, 200, held.Answer(t).Status)
	require.Zero(t, s.edges[1].ExitCode(t))
	active, pending := cluster.Rows(t, s.db.Config())
	require.Zero(t, active)
	require.Zero(t, pending)
	for _, k := range s.coordinators {
		k.Stop(t)
	}
}

// limitsOfTen replaces the coordinators by such as allow ten of each group.
func (s *site) limitsOfTen() {
	s.t.Helper()
	for _, k := range s.coordinators {
		k.Stop(s.t)
	}
	s.coordinators = nil
	for range 2 {
		s.startCoordinator(cluster.Settings{
			"CCNQ_QUEUE_MAX_SERVED_PER_GROUP": "10", "CCNQ_QUEUE_MAX_PENDING_PER_GROUP": "100",
		})
	}
	for _, k := range s.coordinators {
		await.True(s.t, "the coordinator is ready", func() bool { return k.Ready(s.t) })
	}
	for _, e := range s.edges {
		await.True(s.t, "the queue decides", func() bool { return e.Part(s.t, "queue") == "ok" })
	}
}
