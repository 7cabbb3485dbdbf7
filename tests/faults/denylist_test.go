package faults

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/process"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// denied is a site with two denylist services, where one place of one group is
// taken, so that whoever else of the group asks is denied.
type denied struct {
	*site
	services []*process.Service
	sent     int
}

// blockAt is the denial that blocks an address.
const blockAt = 20

// startDenied returns once one of the services leads.
func startDenied(t *testing.T) *denied {
	t.Helper()
	s := newSite(t, patient.With(cluster.Settings{
		"CCNQ_DATA_DIR":                          t.TempDir(),
		"CCNQ_QUEUE_DENYLIST_DAILY_THRESHOLD":    strconv.Itoa(blockAt),
		"CCNQ_QUEUE_DENYLIST_ENABLED":            "true",
		"CCNQ_QUEUE_DENYLIST_EXCEED_THRESHOLD":   "1",
		"CCNQ_QUEUE_DENYLIST_RANGE_IP_THRESHOLD": "1000000",
		"CCNQ_QUEUE_LEASE_MS":                    "600000", // the place stays taken
		"CCNQ_QUEUE_MAX_PENDING_PER_GROUP":       "0",
		"CCNQ_QUEUE_MAX_SERVED_PER_GROUP":        "1",
	}))
	s.nats.Configure(t, fmt.Sprintf("jetstream { store_dir: %q }", t.TempDir()))
	s.nats.Run(t)
	d := &denied{site: s}
	s.startCoordinator(nil)
	for range 2 {
		d.services = append(d.services, process.StartDenylist(t, s.settings))
	}
	s.startEdge()
	for _, p := range append([]*process.Service{s.coordinators[0], s.edges[0]}, d.services...) {
		await.True(t, "the process is ready", func() bool { return p.Ready(t) })
	}
	held := s.Send(t.Context(), visitor.Request{Edge: s.edges[0].URL, IP: d.ip(1), Do: origin.DoGate})
	await.True(t, "the place is taken", func() bool { return s.origin.Now(visitor.Group(d.ip(1))) == 1 })
	t.Cleanup(func() {
		s.origin.OpenGate(visitor.Group(d.ip(1)))
		held.Answer(t)
	})
	d.leader(-1)
	return d
}

// ip returns an address of the group.
func (d *denied) ip(host int) string { return "203.0.113." + strconv.Itoa(host) }

// leader waits until a service other than not leads, and returns its index.
func (d *denied) leader(not int) int {
	d.t.Helper()
	return leader(d.t, d.services, "ccnq_denylist_leader", not)
}

// leader waits until a service other than not says that it leads, and returns its
// index.
func leader(t *testing.T, services []*process.Service, metric string, not int) (leader int) {
	t.Helper()
	await.True(t, "a service leads", func() bool {
		for i, p := range services {
			if i != not && scrape.Get(t, p.Admin).Sum(metric) == 1 {
				leader = i
				return true
			}
		}
		return false
	})
	return leader
}

// deny has an address denied so many times.
func (d *denied) deny(ip string, times int) {
	d.t.Helper()
	for range times {
		answer := d.Get(d.t, visitor.Request{Edge: d.edges[0].URL, IP: ip})
		require.Equal(d.t, http.StatusTooManyRequests, answer.Status)
		d.sent++
	}
}

// counted returns the denials in the tables.
func (d *denied) counted() (n int) {
	d.t.Helper()
	conn, err := pgx.ConnectConfig(d.t.Context(), d.db.Config())
	require.NoError(d.t, err)
	defer conn.Close(d.t.Context())
	require.NoError(d.t, conn.QueryRow(d.t.Context(), "SELECT coalesce(sum(count), 0) FROM ip_denial_count").Scan(&n))
	return n
}

// applied waits until every denial that was sent has been counted.
func (d *denied) applied() {
	d.t.Helper()
	await.True(d.t, "every denial is counted", func() bool { return d.counted() >= d.sent })
	require.Equal(d.t, d.sent, d.counted(), "none counts twice")
}

// blocked has an address denied until the edge refuses it for a block, which
// the queue's five seconds tell apart.
func (d *denied) blocked(ip string) {
	d.t.Helper()
	d.deny(ip, blockAt)
	d.applied()
	await.True(d.t, "the edge knows of the block", func() bool {
		answer := d.Get(d.t, visitor.Request{Edge: d.edges[0].URL, IP: ip})
		if answer.Header.Get("Retry-After") == "5" {
			d.sent++ // not blocked yet: one more denial
			return false
		}
		return answer.Status == http.StatusTooManyRequests
	})
	d.applied()
}

// TestDenylist_LeaderFrozen: the other service takes over, and what the first
// one believes when it wakes changes nothing.
func TestDenylist_LeaderFrozen(t *testing.T) {
	t.Parallel()
	d := startDenied(t)
	first := d.leader(-1)
	d.deny(d.ip(10), blockAt-1)
	d.applied()

	d.services[first].Freeze(t)
	d.deny(d.ip(11), blockAt-1)
	second := d.leader(first)
	d.blocked(d.ip(12))

	d.services[first].Thaw(t)
	await.True(t, "the one that was frozen stands by", func() bool {
		return scrape.Get(t, d.services[first].Admin).Sum("ccnq_denylist_leader") == 0 && d.services[first].Ready(t)
	})
	d.blocked(d.ip(13))

	d.services[second].Freeze(t)
	require.Equal(t, first, d.leader(second))
	d.blocked(d.ip(14))
	d.services[second].Thaw(t)
	d.blocked(d.ip(15))
	t.Logf("denials sent %d, applied %d", d.sent, d.counted())
}

// TestDenylist_LeaderKilled in the middle of its work, again and again. A
// service that comes does not disturb the leader. A stall of the machine may,
// so a round in which the lead moved does not count.
func TestDenylist_LeaderKilled(t *testing.T) {
	t.Parallel()
	d := startDenied(t)
	terms := func(i int) float64 { return scrape.Get(t, d.services[i].Admin).Sum("ccnq_denylist_terms_total") }
	for round, undisturbed := 0, 0; undisturbed < 3; round++ {
		require.Less(t, round, 10, "services that come disturb the leader")
		leader := d.leader(-1)
		d.deny(d.ip(20+round), blockAt/2)
		d.services[leader].Kill(t)
		d.deny(d.ip(20+round), blockAt/2-1)
		next := d.leader(leader)
		term := terms(next)
		d.services[leader] = process.StartDenylist(t, d.settings)
		d.blocked(d.ip(30 + round))
		if d.leader(-1) == next && terms(next) == term {
			undisturbed++
		}
	}
	t.Logf("denials sent %d, applied %d", d.sent, d.counted())
}

// TestDenylist_AllAway: the edge goes on refusing who is blocked, and nothing
// that happens meanwhile is lost.
func TestDenylist_AllAway(t *testing.T) {
	t.Parallel()
	d := startDenied(t)
	d.blocked(d.ip(40))
	for _, p := range d.services {
		p.Kill(t)
	}
	d.deny(d.ip(41), 2*blockAt) // nobody is there to block it
	answer := d.Get(t, visitor.Request{Edge: d.edges[0].URL, IP: d.ip(40)})
	require.Equal(t, http.StatusTooManyRequests, answer.Status)
	require.NotEqual(t, "5", answer.Header.Get("Retry-After"), "still blocked")
	for i := range d.services {
		d.services[i] = process.StartDenylist(t, d.settings)
	}
	d.applied()
	await.True(t, "what happened meanwhile blocks", func() bool {
		a := d.Get(t, visitor.Request{Edge: d.edges[0].URL, IP: d.ip(41)})
		if a.Header.Get("Retry-After") == "5" {
			d.sent++
			return false
		}
		return a.Status == http.StatusTooManyRequests
	})
	d.applied()
	t.Logf("denials sent %d, applied %d", d.sent, d.counted())
}
