package faults

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/process"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// The settings that the promises depend on.
const (
	maxServed, maxPending = 3, 3

	admitTimeout   = time.Second
	pendingTimeout = 3 * time.Second
	lease          = 2 * time.Second

	// longestWait is what package admission promises.
	longestWait = pendingTimeout + 2*admitTimeout
	// slack is for a machine that is busy with many processes: no promise is
	// measured to the millisecond.
	slack = 5 * time.Second
	// comeBack is within how much time the limits must hold again: "seconds".
	comeBack = 20 * time.Second
)

// patient are settings for tests in which the limits must hold exactly: no
// request passes, or is refused, because a busy machine answers late. Twice the
// admit timeout, after which the store frees what an edge does not know, is well
// within comeBack.
var patient = cluster.Settings{"CCNQ_QUEUE_ADMIT_TIMEOUT_MS": "5000", "CCNQ_QUEUE_PENDING_TIMEOUT_MS": "60000"}

// site is everything that one installation has.
type site struct {
	*visitor.Visitors
	t            *testing.T
	origin       *origin.Origin
	postgres     *testdb.Server
	nats         *process.NATS
	edges        []*process.Service
	coordinators []*process.Service

	settings cluster.Settings
	db       testdb.DB
	groups   int // handed out by newGroup
}

// newSite chooses addresses and starts Postgres alone. Settings hold over the
// usual ones.
func newSite(t *testing.T, settings cluster.Settings) *site {
	t.Helper()
	s := &site{
		Visitors: visitor.New(t),
		t:        t,
		origin:   origin.New(t),
		postgres: testdb.StartServer(t),
		nats:     process.NewNATS(t),
	}
	s.db = testdb.DB{Schema: "queue", URL: s.postgres.URL + "&search_path=queue"}
	rules := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(rules, []byte(cluster.Everything), 0o600))
	ms := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	s.settings = cluster.Common(s.origin.URL).With(cluster.Postgres(t, s.db)).With(cluster.Settings{
		"CCNQ_NATS_URL":                    s.nats.URL,
		"CCNQ_QUEUE_ADMIT_TIMEOUT_MS":      ms(admitTimeout),
		"CCNQ_QUEUE_ENABLED":               "true",
		"CCNQ_QUEUE_DENYLIST_ENABLED":      "false",
		"CCNQ_QUEUE_LEASE_MS":              ms(lease),
		"CCNQ_QUEUE_MAX_PENDING_PER_GROUP": fmt.Sprint(maxPending),
		"CCNQ_QUEUE_MAX_SERVED_PER_GROUP":  fmt.Sprint(maxServed),
		"CCNQ_QUEUE_PENDING_TIMEOUT_MS":    ms(pendingTimeout),
		"CCNQ_QUEUE_RULES_FILE":            rules,
	}).With(settings)
	return s
}

// start is newSite with everything started: two coordinators and two edges. It
// returns once the limits hold.
func start(t *testing.T, settings cluster.Settings) *site {
	t.Helper()
	s := newSite(t, settings)
	s.run()
	return s
}

// run starts everything.
func (s *site) run() {
	t := s.t
	t.Helper()
	s.nats.Run(t)
	s.startCoordinator(nil)
	s.startCoordinator(nil)
	for _, k := range s.coordinators {
		await.True(t, "the coordinator is ready", func() bool { return k.Ready(t) })
	}
	s.startEdge()
	s.startEdge()
	for _, e := range s.edges {
		await.True(t, "the edge is ready", func() bool { return e.Ready(t) })
	}
	await.True(t, "the limits hold", s.limitsHold)
}

func (s *site) startEdge() {
	s.t.Helper()
	id := fmt.Sprintf("edge-%d", len(s.edges))
	s.edges = append(s.edges, process.StartEdge(s.t, s.settings.With(cluster.Settings{"CCNQ_EDGE_ID": id})))
}

func (s *site) startCoordinator(settings cluster.Settings) {
	s.t.Helper()
	s.coordinators = append(s.coordinators, process.StartCoordinator(s.t, s.settings.With(settings)))
}

// newGroup returns the addresses of a network that has not been seen before.
func (s *site) newGroup() (ip func(host int) string) {
	s.groups++
	group := s.groups
	return func(host int) string { return fmt.Sprintf("2001:db8:1:%x::%x", group, host) }
}

// limitsHold sends one request more than there is room for, over all edges, and
// reports whether the gate treats them as it should: so many at the origin,
// so many in line, one refused. The store must be up.
func (s *site) limitsHold() bool {
	s.t.Helper()
	const requests = maxServed + maxPending + 1
	ip := s.newGroup()
	group := visitor.Group(ip(1))
	var all []*visitor.Pending
	for i := range requests {
		all = append(all, s.Send(s.t.Context(), visitor.Request{
			Edge: s.edges[i%len(s.edges)].URL, IP: ip(i + 1), Do: origin.DoGate,
		}))
	}
	var atOrigin, inLine, refused int
	await.True(s.t, "each request is at the origin, in line or refused", func() bool {
		atOrigin, refused = s.origin.Now(group), 0
		_, inLine = s.of(ip(1))
		for _, p := range all {
			if p.Answered() {
				refused++
			}
		}
		return atOrigin+inLine+refused >= requests
	})
	s.origin.OpenGate(group)
	for _, p := range all {
		p.Answer(s.t)
	}
	return atOrigin == maxServed && inLine == maxPending && refused == 1 && s.origin.Max(group) == maxServed
}

// comesBack requires that the edges say that all is well and that the limits
// hold again, by themselves.
func (s *site) comesBack() {
	s.t.Helper()
	for _, e := range s.edges {
		await.Within(s.t, comeBack, "the edge says that its queue is well", func() bool { return e.Part(s.t, "queue") == "ok" })
	}
	await.Within(s.t, comeBack, "the limits hold again", s.limitsHold)
}

// empty requires that no place stays taken.
func (s *site) empty() {
	s.t.Helper()
	await.Within(s.t, comeBack, "no place is taken", func() bool {
		active, pending := cluster.Rows(s.t, s.db.Config())
		return active == 0 && pending == 0
	})
}

// sum adds up a metric over all edges.
func (s *site) sum(name string) int {
	s.t.Helper()
	sum := 0.0
	for _, e := range s.edges {
		sum += scrape.Get(s.t, e.Admin).Sum(name)
	}
	return int(sum)
}

// degraded waits until every edge says that nobody decides.
func (s *site) degraded() {
	s.t.Helper()
	for _, e := range s.edges {
		await.True(s.t, "the edge is degraded, and ready", func() bool {
			part := e.Part(s.t, "queue")
			return part != "ok" && part != "" && e.Ready(s.t)
		})
	}
}

// of counts what the store has of one visitor's group.
func (s *site) of(ip string) (active, pending int) {
	s.t.Helper()
	return cluster.RowsOf(s.t, s.db.Config(), visitor.Group(ip))
}

// places counts the requests of one edge that the store has, waiting ones too.
func (s *site) places(edge string) (n int) {
	s.t.Helper()
	conn, err := pgx.ConnectConfig(s.t.Context(), s.db.Config())
	require.NoError(s.t, err)
	defer conn.Close(context.WithoutCancel(s.t.Context()))
	require.NoError(s.t, conn.QueryRow(s.t.Context(), `SELECT count(*) FROM (
		SELECT edge_id FROM active_request UNION ALL SELECT edge_id FROM pending_request) AS r WHERE edge_id = $1`, edge).Scan(&n))
	return n
}

// exec runs SQL as an operator would.
func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	conn, err := pgx.ConnectConfig(s.t.Context(), s.db.Config())
	require.NoError(s.t, err)
	defer conn.Close(context.WithoutCancel(s.t.Context()))
	_, err = conn.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

// traffic is a steady stream of requests that no limit concerns: whatever goes
// wrong with one is the outage's fault.
type traffic struct {
	s      *site
	stop   context.CancelFunc
	ended  chan struct{}
	mu     sync.Mutex
	served int
	wrong  []string
}

const (
	// pace is 50 requests a second.
	pace = 20 * time.Millisecond
	// networks is how many groups share them: one request of each in two
	// seconds, so that places which come back late matter to none.
	networks = 100
)

// drive begins to send to the edges.
func (s *site) drive(edges ...*process.Service) *traffic {
	ctx, stop := context.WithCancel(s.t.Context())
	tr := &traffic{s: s, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(tr.ended)
		var under sync.WaitGroup
		defer under.Wait()
		ticker := time.NewTicker(pace)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			under.Go(func() {
				tr.ask(edges[n%len(edges)], fmt.Sprintf("2001:db8:2:%x::1", n%networks))
			})
		}
	}()
	s.t.Cleanup(func() { stop(); <-tr.ended })
	return tr
}

// ask makes one request. It is not cut short by the end of the stream.
func (tr *traffic) ask(edge *process.Service, ip string) {
	began := time.Now()
	answer := tr.s.Ask(context.WithoutCancel(tr.s.t.Context()), visitor.Request{Edge: edge.URL, IP: ip})
	took := time.Since(began)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch {
	case answer.Err != nil:
		tr.wrong = append(tr.wrong, answer.Err.Error())
	case answer.Status != http.StatusOK:
		tr.wrong = append(tr.wrong, fmt.Sprintf("status %d: %s", answer.Status, answer.Body))
	case took > longestWait+slack:
		tr.wrong = append(tr.wrong, fmt.Sprintf("took %s", took))
	default:
		tr.served++
	}
}

// more waits until so many more requests have been served.
func (tr *traffic) more(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return tr.served
	}
	before := count()
	await.True(t, "requests are served", func() bool { return count() >= before+n })
}

// wellServed ends the stream and requires that every request was served in
// time.
func (tr *traffic) wellServed(t *testing.T) {
	t.Helper()
	tr.stop()
	await.Value(t, "the last answer", tr.ended)
	require.Empty(t, tr.wrong)
}
