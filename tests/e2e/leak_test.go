package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// noRepair switches off leases and sweeps, which would hide a leak. What status
// messages repair is counted, see [cluster.Cluster.NothingRepaired].
var noRepair = cluster.Settings{
	"CCNQ_QUEUE_LEASE_MS":          "600000",
	"CCNQ_QUEUE_STALE_ACTIVE_MS":   "3600000",
	"CCNQ_QUEUE_SWEEP_INTERVAL_MS": "3600000",
}

// TestF16_TheClientHangsUpWhileItIsServed: whatever ends an exchange gives its
// place back at once, and once.
func TestF16_TheClientHangsUpWhileItIsServed(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name     string
		settings cluster.Settings
		run      func(*testing.T, *cluster.Cluster)
	}{
		{"before the origin's head", nil, func(t *testing.T, c *cluster.Cluster) {
			t.Helper()
			a, p := occupy(t, c, visitor.Request{IP: alice})
			p.HangUp()
			require.ErrorIs(t, p.Answer(t).Err, context.Canceled)
			<-a.Ended()
		}},
		{"in the middle of the body", nil, func(t *testing.T, c *cluster.Cluster) {
			t.Helper()
			a, p := occupy(t, c, visitor.Request{IP: alice, Do: origin.DoPart})
			p.HangUp()
			answer := p.Answer(t)
			require.Error(t, answer.Err)
			<-a.Ended()
		}},
		{"while it sends the body", nil, func(t *testing.T, c *cluster.Cluster) {
			t.Helper()
			conn := visitor.Dial(t, c.Edges[0].URL)
			conn.Lines(t, "POST / HTTP/1.1", "Host: site.example", visitor.AddressField+": "+alice,
				origin.Group+": "+visitor.Group(alice), "Content-Length: 1000000", "", "only this")
			await.True(t, "the request is at the origin", func() bool { return c.Origin.Now(visitor.Group(alice)) == 1 })
			require.NoError(t, conn.Close())
		}},
		{"the origin resets", nil, func(t *testing.T, c *cluster.Cluster) {
			t.Helper()
			answer := c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: alice, Do: origin.DoReset})
			require.Equal(t, http.StatusBadGateway, answer.Status)
		}},
		{"the origin closes in the middle of a chunk", nil, func(t *testing.T, c *cluster.Cluster) {
			t.Helper()
			answer := c.Ask(t.Context(), visitor.Request{Edge: c.Edges[0].URL, IP: alice, Do: origin.DoBreak})
			require.ErrorIs(t, answer.Err, io.ErrUnexpectedEOF, "a broken answer must not look whole")
		}},
		{"the origin never answers", cluster.Settings{"CCNQ_UPSTREAM_HEADER_TIMEOUT_MS": "3000"}, func(t *testing.T, c *cluster.Cluster) {
			t.Helper()
			a, p := occupy(t, c, visitor.Request{IP: alice})
			answer := p.Answer(t)
			require.NoError(t, answer.Err)
			require.Equal(t, http.StatusGatewayTimeout, answer.Status)
			<-a.Ended()
		}},
		{"the time limit ends it", cluster.Settings{"CCNQ_QUEUE_MAX_ACTIVE_DURATION_MS": "3000"}, func(t *testing.T, c *cluster.Cluster) {
			t.Helper()
			a, p := occupy(t, c, visitor.Request{IP: alice, Do: origin.DoPart})
			require.ErrorIs(t, p.Answer(t).Err, io.ErrUnexpectedEOF)
			<-a.Ended()
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := cluster.New(t, cluster.Options{Edges: 2, Settings: limits("1", "5").With(noRepair).With(tc.settings)})
			for range 3 {
				tc.run(t, c)
				// Another client of the group, at the other edge, is served.
				answer := c.Get(t, visitor.Request{Edge: c.Edges[1].URL, IP: bob})
				require.Equal(t, http.StatusOK, answer.Status)
				c.NothingLeft(t)
			}
			c.NothingRepaired(t)
			// The place came back once: there is still only one.
			require.Equal(t, 1, c.Origin.Max(visitor.Group(alice)))
			if tc.settings != nil {
				return // a held request would be cut
			}
			a, p := occupy(t, c, visitor.Request{IP: alice})
			second := c.Send(t.Context(), visitor.Request{Edge: c.Edges[1].URL, IP: bob})
			c.Waiting(t, 1)
			require.Equal(t, 1, c.Origin.Now(visitor.Group(alice)))
			finish(t, a, p)
			require.Equal(t, http.StatusOK, second.Answer(t).Status)
			c.NothingLeft(t)
		})
	}
}

// TestLeaks_TenThousandRequests mixes everything that can go wrong between
// client, edge and origin. It runs before the parallel tests, alone: a process
// that does not get to run for a second lets requests pass undecided, rightly.
func TestLeaks_TenThousandRequests(t *testing.T) {
	const requests, visitors, groups, served = 10_000, 64, 6, 4
	c := cluster.New(t, cluster.Options{Edges: 2, Coordinators: 2, Settings: limits("4", "4").With(noRepair)})
	ip := func(group, host int) string { return fmt.Sprintf("2001:db8:0:%x::%x", group, host) }

	var next atomic.Int64
	var all sync.WaitGroup
	for seed := range visitors {
		all.Go(func() {
			random := rand.New(rand.NewPCG(16, uint64(seed)))
			for n := next.Add(1); n <= requests; n = next.Add(1) {
				misbehave(t.Context(), c, random, ip(int(n)%groups, seed+1))
			}
		})
	}
	all.Wait()

	require.Empty(t, undecided(t, c))
	require.LessOrEqual(t, c.Origin.MaxOfAll(), served)
	require.Positive(t, verdicts(t, c, "queue-full"), "the run must fill the queue")
	require.Positive(t, verdicts(t, c, "client-gone"), "visitors must have left while they waited")
	c.NothingLeft(t)
	c.NothingRepaired(t)

	// Each group has all its places, and no more.
	for g := range groups {
		var held []*origin.Arrival
		var pending []*visitor.Pending
		for i := range served {
			a, p := occupy(t, c, visitor.Request{Edge: c.Edges[i%2].URL, IP: ip(g, i+1)})
			held, pending = append(held, a), append(pending, p)
		}
		late := c.Send(t.Context(), visitor.Request{Edge: c.Edges[g%2].URL, IP: ip(g, 99)})
		c.Waiting(t, 1)
		for i := range held {
			finish(t, held[i], pending[i])
		}
		require.Equal(t, http.StatusOK, late.Answer(t).Status)
	}
	require.LessOrEqual(t, c.Origin.MaxOfAll(), served)
	c.NothingLeft(t)
}

// misbehave makes one request in one of many ways. What comes back is of no
// interest here.
func misbehave(ctx context.Context, c *cluster.Cluster, random *rand.Rand, ip string) {
	r := visitor.Request{Edge: c.Edges[random.IntN(len(c.Edges))].URL, IP: ip}
	patience := time.Minute
	read := int64(1 << 30)
	switch random.IntN(16) {
	case 0, 1:
		r.Do = origin.DoReset
	case 2, 3:
		r.Do = origin.DoBreak
	case 4, 5: // an impatient one
		r.Do = origin.DoTake + "20ms"
		patience = time.Duration(random.IntN(25)) * time.Millisecond
	case 6, 7: // one that leaves in the middle of the answer
		r.Do = origin.DoSend + "200000"
		read = random.Int64N(200_000)
	case 8: // a slow reader, who lets the answer pile up
		r.Do = origin.DoSend + "3000000"
		read, patience = 1, time.Duration(random.IntN(25))*time.Millisecond
	case 9, 10:
		r.Do = origin.DoTake + "3ms"
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := c.Open(ctx, r)
	if err != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, resp.Body, read)
	if read == 1 {
		<-ctx.Done()
	}
	_ = resp.Body.Close()
}
