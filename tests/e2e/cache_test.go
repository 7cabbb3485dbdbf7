package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// caching are the settings of a cache that stores every page for a minute.
func caching(t *testing.T) cluster.Settings {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cache.json")
	require.NoError(t, os.WriteFile(file, []byte(cluster.Everything), 0o600))
	return cluster.Settings{
		"CCNQ_CACHE_ENABLED":    "true",
		"CCNQ_CACHE_RULES_FILE": file,
		"CCNQ_CACHE_DIR":        t.TempDir(),
	}
}

// cached starts a cluster whose edges have caches of their own.
func cached(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	settings := caching(t)
	delete(settings, "CCNQ_CACHE_DIR")
	o.Settings = settings.With(o.Settings)
	return cluster.New(t, o)
}

// xCache requires what the cache did for a request.
func xCache(t *testing.T, want string, a visitor.Answer) visitor.Answer {
	t.Helper()
	require.NoError(t, a.Err)
	require.Equal(t, []string{want}, a.Header["X-Cache"], a.Header["Cache-Status"])
	return a
}

// waiting waits until so many requests share fetches of the first edge.
func waiting(t *testing.T, c *cluster.Cluster, want int) {
	t.Helper()
	await.True(t, "the expected number of requests waits for fetches", func() bool {
		return int(scrape.Get(t, c.Edges[0].Admin).Value(t, "ccnq_cache_waiting")) >= want
	})
}

// TestCache_AHitNeedsNeitherPlaceNorOrigin: a full group is served what is stored
// and refused what is not.
func TestCache_AHitNeedsNeitherPlaceNorOrigin(t *testing.T) {
	t.Parallel()
	c := cached(t, cluster.Options{Settings: limits("1", "0").With(cluster.Settings{"CCNQ_ACCESS_LOG": "true"})})
	url := c.Edges[0].URL
	xCache(t, "MISS", c.Get(t, visitor.Request{Edge: url, IP: carol, Path: "/page"}))
	held, pending := occupy(t, c, visitor.Request{IP: alice, Path: "/slow"})
	hit := xCache(t, "HIT", c.Get(t, visitor.Request{Edge: url, IP: bob, Path: "/page"}))
	require.Equal(t, "ok\n", hit.Body)
	require.Contains(t, hit.Header.Get("Cache-Status"), "ccnq; hit; ttl=")
	require.NotEmpty(t, hit.Header.Get("Age"))
	miss := xCache(t, "MISS", c.Get(t, visitor.Request{Edge: url, IP: bob, Path: "/other"}))
	require.Equal(t, refused, miss.Status)
	require.Equal(t, "no-store", miss.Header.Get("Cache-Control"))
	post := xCache(t, "BYPASS", c.Get(t, visitor.Request{Edge: url, IP: bob, Path: "/other", Method: http.MethodPost}))
	require.Equal(t, refused, post.Status)
	finish(t, held, pending)
	require.Equal(t, 2, c.Origin.Total())
	requireVerdicts(t, c, 1, "hit")
	requireVerdicts(t, c, 2, "queue-full")
	await.True(t, "the log says what the cache did", func() bool {
		words := map[any]int{}
		for _, line := range c.Edges[0].Log.Lines(t, "request") {
			words[line["cache"]]++
		}
		return words["hit"] == 1 && words["miss"] == 3 && words["bypass"] == 1
	})
	c.NothingLeft(t)
}

// TestCache_OneFetchForAHerd: a thousand clients of many networks, each of which
// may have one request at the origin.
func TestCache_OneFetchForAHerd(t *testing.T) {
	t.Parallel()
	const clients = 1000
	c := cached(t, cluster.Options{Settings: limits("1", "5").With(noRepair)})
	all := make([]*visitor.Pending, clients)
	for i := range all {
		ip := fmt.Sprintf("10.%d.%d.7", i/200, i%200)
		all[i] = c.Send(t.Context(), visitor.Request{Edge: c.Edges[0].URL, IP: ip, Path: "/page", Do: origin.DoHold})
	}
	arrival := c.Origin.Next(t)
	waiting(t, c, clients)
	arrival.Release()
	for _, p := range all {
		require.Equal(t, "held\n", xCache(t, "MISS", p.Answer(t)).Body)
	}
	require.Equal(t, 1, c.Origin.Total())
	requireVerdicts(t, c, clients-1, "collapsed")
	c.NothingLeft(t)
	c.NothingRepaired(t)
}

// TestCache_ABusyGroupHoldsUpNoInnocent: whoever is admitted first leads, and who
// still stood in line gets the page too and leaves the line.
func TestCache_ABusyGroupHoldsUpNoInnocent(t *testing.T) {
	t.Parallel()
	c := cached(t, cluster.Options{Settings: limits("1", "5").With(noRepair)})
	url := c.Edges[0].URL
	busy, busyPending := occupy(t, c, visitor.Request{IP: alice, Path: "/slow"})
	inLine := []*visitor.Pending{
		c.Send(t.Context(), visitor.Request{Edge: url, IP: alice, Path: "/page"}),
		c.Send(t.Context(), visitor.Request{Edge: url, IP: bob, Path: "/page"}),
	}
	waiting(t, c, 3)
	c.Waiting(t, 1) // of one group one seeks admission
	require.Equal(t, "ok\n", xCache(t, "MISS", c.Get(t, visitor.Request{Edge: url, IP: carol, Path: "/page"})).Body)
	for _, p := range inLine {
		require.Equal(t, "ok\n", xCache(t, "MISS", p.Answer(t)).Body)
	}
	c.Waiting(t, 0)
	require.Equal(t, 2, c.Origin.Total())
	finish(t, busy, busyPending)
	c.NothingLeft(t)
	c.NothingRepaired(t)
}

// TestF13_TheFirstAskerLeaves: its place is held until the exchange ends, and the
// others get the page. With everybody gone the exchange ends and the place is free.
func TestF13_TheFirstAskerLeaves(t *testing.T) {
	t.Parallel()
	c := cached(t, cluster.Options{Settings: limits("1", "5").With(noRepair)})
	url := c.Edges[0].URL
	arrival, first := occupy(t, c, visitor.Request{IP: alice, Path: "/page"})
	var others []*visitor.Pending
	for range 19 {
		others = append(others, c.Send(t.Context(), visitor.Request{Edge: url, IP: carol, Path: "/page"}))
	}
	waiting(t, c, 20)
	first.HangUp()
	require.Error(t, first.Answer(t).Err)
	active, pending := c.Rows(t)
	require.Equal(t, 1, active, "the place of the one who left is held")
	require.Zero(t, pending)
	arrival.Release()
	for _, p := range others {
		require.Equal(t, "held\n", xCache(t, "MISS", p.Answer(t)).Body)
	}
	require.Equal(t, 1, c.Origin.Total())
	c.NothingLeft(t)

	arrival, first = occupy(t, c, visitor.Request{IP: alice, Path: "/again"})
	first.HangUp()
	<-arrival.Ended()
	c.NothingLeft(t)
	c.NothingRepaired(t)
}

// TestCache_TheCapIsExact with misses, followers, pages that cannot be stored and
// clients who leave.
func TestCache_TheCapIsExact(t *testing.T) {
	t.Parallel()
	const served = 3
	c := cached(t, cluster.Options{Edges: 2, Coordinators: 2, Settings: limits("3", "40").With(noRepair)})
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := visitor.Request{
				Edge: c.Edges[i%2].URL, IP: []string{alice, bob, carol}[i%3], Path: fmt.Sprintf("/%d", i%17), Do: origin.DoTake + "20ms",
			}
			switch i % 5 {
			case 0:
				r.Header = http.Header{"Authorization": {"Basic eA=="}}
			case 1:
				r.Method = http.MethodHead
			case 2:
				p := c.Send(ctx, r)
				if i%2 == 0 {
					p.HangUp()
				}
				_ = p.Answer(t)
				return
			}
			answer := c.Ask(ctx, r)
			if answer.Err != nil || answer.Status != http.StatusOK && answer.Status != refused {
				t.Errorf("%+v", answer)
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, c.Origin.MaxOfAll(), served, "requests at once of one group")
	c.NothingLeft(t)
	c.NothingRepaired(t)
}

// TestCache_MaxActiveDuration cuts the fetch and all who read from it.
func TestCache_MaxActiveDuration(t *testing.T) {
	t.Parallel()
	c := cached(t, cluster.Options{Settings: limits("1", "1").With(noRepair).With(cluster.Settings{
		"CCNQ_QUEUE_MAX_ACTIVE_DURATION_MS": "5000",
	})})
	arrival, first := occupy(t, c, visitor.Request{IP: alice, Path: "/page", Do: origin.DoPart})
	second := c.Send(t.Context(), visitor.Request{Edge: c.Edges[0].URL, IP: carol, Path: "/page"})
	require.Error(t, first.Answer(t).Err)
	require.Error(t, second.Answer(t).Err)
	<-arrival.Ended()
	xCache(t, "MISS", c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: alice, Path: "/page"}))
	c.NothingLeft(t)
}

// TestCache_NeedsNothingElse: no NATS, no Postgres, no queue.
func TestCache_NeedsNothingElse(t *testing.T) {
	t.Parallel()
	o, v := origin.New(t), visitor.New(t)
	e := cluster.StartEdge(t, caching(t).With(cluster.Settings{
		"CCNQ_ADMIN_ADDR": "127.0.0.1:0", "CCNQ_PORT": "0", "CCNQ_SHUTDOWN_DELAY_MS": "0",
		"CCNQ_UPSTREAM_URL": o.URL,
	}))
	xCache(t, "MISS", v.Get(t, visitor.Request{Edge: e.URL, Path: "/a"}))
	require.Equal(t, "ok\n", xCache(t, "HIT", v.Get(t, visitor.Request{Edge: e.URL, Path: "/a"})).Body)
	r, ok := scrape.Ready(t, e.Admin)
	require.True(t, ok)
	require.Equal(t, "ok", r.Parts["cache"])
	m := scrape.Get(t, e.Admin)
	await.True(t, "the requests are counted", func() bool {
		m = scrape.Get(t, e.Admin)
		return m.Sum("ccnq_cache_requests_total", `result="hit"`) == 1
	})
	require.InDelta(t, 1, m.Sum("ccnq_cache_requests_total", `result="miss"`), 0)
}

// TestCache_RulesLimitIt: what is out of its scope goes past it.
func TestCache_RulesLimitIt(t *testing.T) {
	t.Parallel()
	c := cached(t, cluster.Options{})
	file := filepath.Join(t.TempDir(), "cache.json")
	require.NoError(t, os.WriteFile(file, []byte(`[[
		{"target": "path", "matchType": "startsWith", "value": "/static/"},
		{"target": "cookie", "name": "no-cache", "negate": true}
	]]`), 0o600))
	e := c.StartEdge(t, cluster.Settings{"CCNQ_CACHE_RULES_FILE": file})
	for range 2 {
		xCache(t, "BYPASS", c.Get(t, visitor.Request{Edge: e.URL, IP: alice, Path: "/page"}))
		xCache(t, "BYPASS", c.Get(t, visitor.Request{
			Edge: e.URL, IP: alice, Path: "/static/a", Header: http.Header{"Cookie": {"no-cache=1"}},
		}))
	}
	xCache(t, "MISS", c.Get(t, visitor.Request{Edge: e.URL, IP: alice, Path: "/static/a"}))
	xCache(t, "HIT", c.Get(t, visitor.Request{Edge: e.URL, IP: alice, Path: "/static/a"}))
}

// TestCache_ABlockedClientGetsNothing, not even what is stored.
func TestCache_ABlockedClientGetsNothing(t *testing.T) {
	t.Parallel()
	settings := caching(t)
	delete(settings, "CCNQ_CACHE_DIR")
	c := denied(t, settings.With(cluster.Settings{"CCNQ_QUEUE_DENYLIST_DAILY_THRESHOLD": "2"}), 0)
	url := c.Edges[0].URL
	xCache(t, "MISS", c.Get(t, visitor.Request{Edge: url, IP: carol, Path: "/page"}))
	held, pending := occupy(t, c, visitor.Request{IP: alice, Path: "/slow"})
	for i := range 2 {
		require.Equal(t, refused, c.Get(t, visitor.Request{Edge: url, IP: bob, Path: fmt.Sprintf("/%d", i)}).Status)
	}
	finish(t, held, pending)
	await.True(t, "bob is blocked", func() bool {
		a := c.Get(t, visitor.Request{Edge: url, IP: bob, Path: "/page"})
		return a.Status == refused && strings.Join(a.Header["X-Cache"], "") == "BYPASS"
	})
	xCache(t, "HIT", c.Get(t, visitor.Request{Edge: url, IP: alice, Path: "/page"}))
}
