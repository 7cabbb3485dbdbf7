// Package cluster runs edges and coordinators in the test's own process, on a
// real NATS server and a real Postgres: each is the struct that its command
// runs, configured by the same variables.
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist"
	"github.com/ccnq/ccnq/services/edge"
	coordinator "github.com/ccnq/ccnq/services/queue-coordinator"
	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// stopLimit bounds the end of one service.
const stopLimit = 30 * time.Second

// Options say what to start.
type Options struct {
	// Edges and Coordinators are numbers; 0 means 1 edge and 1 coordinator.
	Edges, Coordinators int
	// Denylist starts the denylist service too.
	Denylist bool
	// Rules is the ruleset of the queue; empty means [Everything].
	Rules string
	// Settings hold over [Common].
	Settings Settings
	// NATS is the address of a server that runs already, with JetStream; empty
	// starts one.
	NATS string
	// DB is a migrated database; the zero value makes one.
	DB testdb.DB
	// User returns the settings of one service alone, such as its credentials:
	// of coordinator, denylist, or an edge by its id. May be nil.
	User func(name string) Settings
}

// Cluster is a running cluster with its origin and its visitors.
type Cluster struct {
	*visitor.Visitors
	Origin *origin.Origin
	// RulesFile is the path of the ruleset that all edges use.
	RulesFile string

	Edges        []*Edge
	Coordinators []*Coordinator

	settings     Settings
	user         func(name string) Settings
	db           testdb.DB
	edgesStarted int
}

// Edge is a running edge.
type Edge struct {
	*edge.Edge
	// ID is the edge's name, if the cluster gave it one.
	ID string
	// URL is where clients connect, Admin where operators do.
	URL, Admin string
	// CacheDir is the folder of the edge's cache, if the settings name one.
	CacheDir string
	Log      *Log
}

// Coordinator is a running coordinator.
type Coordinator struct {
	*coordinator.Coordinator
	Admin string
	Log   *Log
}

// New starts a cluster and ends it with the test.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{
		Visitors:  visitor.New(t),
		Origin:    origin.New(t),
		RulesFile: filepath.Join(t.TempDir(), "rules.json"),
		db:        o.DB,
	}
	if c.db.URL == "" {
		c.db = testdb.New(t)
	}
	if o.Rules == "" {
		o.Rules = Everything
	}
	c.WriteRules(t, o.Rules)
	if o.NATS == "" {
		o.NATS = startNATS(t, o.Denylist)
	}
	if c.user = o.User; c.user == nil {
		c.user = func(string) Settings { return nil }
	}
	c.settings = Common(c.Origin.URL).With(Postgres(t, c.db)).With(Settings{
		"CCNQ_NATS_URL":               o.NATS,
		"CCNQ_QUEUE_ENABLED":          "true",
		"CCNQ_QUEUE_DENYLIST_ENABLED": strconv.FormatBool(o.Denylist),
		"CCNQ_DATA_DIR":               t.TempDir(),
		"CCNQ_QUEUE_RULES_FILE":       c.RulesFile,
	}).With(o.Settings)
	for range max(o.Coordinators, 1) {
		c.StartCoordinator(t, nil)
	}
	if o.Denylist {
		c.StartDenylist(t)
	}
	for range max(o.Edges, 1) {
		c.StartEdge(t, nil)
	}
	return c
}

// startNATS starts a server that lets everybody do everything.
func startNATS(t testing.TB, jetStream bool) string {
	t.Helper()
	broker := embed.Options{Host: "127.0.0.1", Port: -1}
	if jetStream {
		broker.StoreDir = t.TempDir()
	}
	nats, err := embed.Start(broker)
	require.NoError(t, err)
	t.Cleanup(nats.Stop)
	return nats.ClientURL()
}

// WriteRules replaces the ruleset as a careful operator does: by a rename.
func (c *Cluster) WriteRules(t testing.TB, rules string) {
	t.Helper()
	next := c.RulesFile + ".next"
	require.NoError(t, os.WriteFile(next, []byte(rules), 0o600))
	require.NoError(t, os.Rename(next, c.RulesFile))
}

// StartEdge starts one more edge, whose settings may differ. It returns once a
// coordinator has heard of the edge.
func (c *Cluster) StartEdge(t testing.TB, settings Settings) *Edge {
	t.Helper()
	c.edgesStarted++
	id := fmt.Sprintf("edge-%d", c.edgesStarted)
	own := Settings{"CCNQ_EDGE_ID": id, "CCNQ_CACHE_DIR": t.TempDir()}
	e := StartEdge(t, c.settings.With(own).With(c.user(id)).With(settings))
	e.ID = id
	c.Edges = append(c.Edges, e)
	await.True(t, "a coordinator has heard of the edge", func() bool {
		return count(t, c.db.Config(), "SELECT count(*) FROM edge_lease WHERE edge_id = $1", id) == 1
	})
	return e
}

// StartEdge starts an edge that belongs to no cluster and needs none.
func StartEdge(t testing.TB, settings Settings) *Edge {
	t.Helper()
	e := &Edge{Log: &Log{}, CacheDir: settings["CCNQ_CACHE_DIR"]}
	var cfg edge.Config
	require.NoError(t, config.Load(settings.Environ(), &cfg))
	var err error
	e.Edge, err = edge.New(cfg, edge.Deps{Logger: e.Log.Logger()})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() {
		stop(t, e.Edge)
		e.Log.showIfFailed(t, "edge")
	})
	e.URL = "http://" + loopback(e.Addr())
	e.Admin = "http://" + loopback(e.AdminAddr())
	return e
}

// Decides waits until the edge's queue decides.
func (e *Edge) Decides(t testing.TB) {
	t.Helper()
	await.True(t, "the queue decides", func() bool {
		r, ok := scrape.Ready(t, e.Admin)
		return ok && r.Parts["queue"] == "ok"
	})
}

// Degraded waits until the edge has noticed that nobody decides.
func (e *Edge) Degraded(t testing.TB) {
	t.Helper()
	await.True(t, "the queue is degraded, and the edge ready", func() bool {
		r, ok := scrape.Ready(t, e.Admin)
		return ok && r.Ready && strings.HasPrefix(r.Parts["queue"], "degraded: ")
	})
}

// StartCoordinator starts one more coordinator, whose settings may differ. It
// returns once it is ready.
func (c *Cluster) StartCoordinator(t testing.TB, settings Settings) *Coordinator {
	t.Helper()
	k := &Coordinator{Log: &Log{}}
	var cfg coordinator.Config
	require.NoError(t, config.Load(c.settings.With(c.user("coordinator")).With(settings).Environ(), &cfg))
	k.Coordinator = coordinator.New(cfg, coordinator.Deps{Logger: k.Log.Logger()})
	require.NoError(t, k.Start(t.Context()))
	t.Cleanup(func() {
		stop(t, k.Coordinator)
		k.Log.showIfFailed(t, "coordinator")
	})
	k.Admin = "http://" + loopback(k.Addr())
	await.True(t, "the coordinator is ready", func() bool {
		r, ok := scrape.Ready(t, k.Admin)
		return ok && r.Ready
	})
	c.Coordinators = append(c.Coordinators, k)
	return k
}

// StartDenylist starts a denylist service. It returns once it is ready.
func (c *Cluster) StartDenylist(t testing.TB) {
	t.Helper()
	d := StartDenylist(t, c.settings.With(c.user("denylist")))
	await.True(t, "the denylist is ready", func() bool {
		r, ok := scrape.Ready(t, d.Admin)
		return ok && r.Ready
	})
}

// Denylist is a running denylist service.
type Denylist struct {
	*denylist.Service
	Admin string
	Log   *Log
}

// StartDenylist starts a denylist service that belongs to no cluster, and does not
// wait for it.
func StartDenylist(t testing.TB, settings Settings) *Denylist {
	t.Helper()
	d := &Denylist{Log: &Log{}}
	var cfg denylist.Config
	require.NoError(t, config.Load(settings.Environ(), &cfg))
	d.Service = denylist.New(cfg, denylist.Deps{Logger: d.Log.Logger()})
	require.NoError(t, d.Start(t.Context()))
	t.Cleanup(func() {
		stop(t, d.Service)
		d.Log.showIfFailed(t, "denylist")
	})
	d.Admin = "http://" + loopback(d.Addr())
	return d
}

// SQL runs a statement as an operator does.
func (c *Cluster) SQL(t testing.TB, statement string, args ...any) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), c.db.Config())
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), statement, args...)
	require.NoError(t, err)
}

// Count runs a query for one number.
func (c *Cluster) Count(t testing.TB, query string, args ...any) int {
	t.Helper()
	return count(t, c.db.Config(), query, args...)
}

// Stored reports whether a stream holds a message of a subject.
func (c *Cluster) Stored(t testing.TB, stream, subject string) bool {
	t.Helper()
	conn, err := bus.Connect(bus.Options{URL: c.settings["CCNQ_NATS_URL"], Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer conn.Close()
	_, err = bus.DirectGetLast(t.Context(), conn, stream, subject)
	if err != nil {
		require.ErrorIs(t, err, bus.ErrNotFound)
	}
	return err == nil
}

// Stop ends one service before the test does.
func Stop(t testing.TB, service interface{ Stop(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stopLimit)
	defer cancel()
	require.NoError(t, service.Stop(ctx))
}

func stop(t testing.TB, service interface{ Stop(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := service.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// Rows counts the requests that the store has, as an operator would: active
// ones and waiting ones.
func (c *Cluster) Rows(t testing.TB) (active, pending int) {
	t.Helper()
	return Rows(t, c.db.Config())
}

// Rows is [Cluster.Rows] for any database.
func Rows(t testing.TB, cfg *pgx.ConnConfig) (active, pending int) {
	t.Helper()
	return count(t, cfg, "SELECT count(*) FROM active_request"), count(t, cfg, "SELECT count(*) FROM pending_request")
}

// RowsOf is [Rows] for one group.
func RowsOf(t testing.TB, cfg *pgx.ConnConfig, group string) (active, pending int) {
	t.Helper()
	return count(t, cfg, "SELECT count(*) FROM active_request WHERE ip_group = $1", group),
		count(t, cfg, "SELECT count(*) FROM pending_request WHERE ip_group = $1", group)
}

// count runs a query for one number.
func count(t testing.TB, cfg *pgx.ConnConfig, query string, args ...any) (n int) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	require.NoError(t, conn.QueryRow(t.Context(), query, args...).Scan(&n))
	return n
}

// Held returns one of the places that an edge holds.
func (c *Cluster) Held(t testing.TB, edge string) (item wire.Item) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), c.db.Config())
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	item.Bucket.Kind = wire.KindGroup
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT request_id, ip_group FROM active_request WHERE edge_id = $1", edge).
		Scan((*[16]byte)(&item.RequestID), &item.Bucket.Key))
	return item
}

// Denials is how many denials are counted.
func (c *Cluster) Denials(t testing.TB) int {
	t.Helper()
	return count(t, c.db.Config(), "SELECT coalesce(sum(count), 0)::integer FROM ip_denial_count")
}

// Waiting waits until so many requests stand in line.
func (c *Cluster) Waiting(t testing.TB, want int) {
	t.Helper()
	await.True(t, "the expected number of requests waits", func() bool {
		_, pending := c.Rows(t)
		return pending == want
	})
}

// Active waits until so many requests hold a place.
func (c *Cluster) Active(t testing.TB, want int) {
	t.Helper()
	await.True(t, "the expected number of requests holds a place", func() bool {
		active, _ := c.Rows(t)
		return active == want
	})
}

// NothingLeft requires that every place and every gauge returns to zero.
func (c *Cluster) NothingLeft(t testing.TB) {
	t.Helper()
	await.True(t, "the origin is idle", c.Origin.Idle)
	await.True(t, "the store has no request left", func() bool {
		active, pending := c.Rows(t)
		return active == 0 && pending == 0
	})
	require.Zero(t, count(t, c.db.Config(),
		"SELECT count(*) FROM group_state WHERE active_count <> 0 OR pending_count <> 0"), "groups whose counts are not zero")
	for _, e := range c.Edges {
		for _, gauge := range []string{"ccnq_queue_held", "ccnq_queue_waiting", "ccnq_requests_in_flight"} {
			await.True(t, gauge+" is zero", func() bool { return scrape.Get(t, e.Admin).Value(t, gauge) == 0 })
		}
	}
}

// NothingRepaired requires that the store had to free nothing that an edge had
// forgotten. The exception, which a busy machine makes happen, is an admit that
// was asked for twice: its second copy may arrive when the request is over.
func (c *Cluster) NothingRepaired(t testing.TB) {
	t.Helper()
	repaired, asked, answered := 0.0, 0.0, 0.0
	for _, k := range c.Coordinators {
		repaired += scrape.Get(t, k.Admin).Value(t, "ccnq_coordinator_repaired_total")
	}
	for _, e := range c.Edges {
		m := scrape.Get(t, e.Admin)
		asked += m.Value(t, "ccnq_queue_asks_total")
		answered += m.Value(t, "ccnq_queue_admit_seconds_count")
	}
	require.LessOrEqual(t, repaired, asked-answered, "places that came back by repair alone")
}
