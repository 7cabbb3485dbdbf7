package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/tests/load/internal/process"
)

// everything is a ruleset that matches every request, nothing one that matches
// none.
const (
	everything = `[[{"target": "path", "matchType": "startsWith", "value": "/"}]]`
	nothing    = `[[{"target": "path", "matchType": "regex", "value": "\\.(mp4|mov|zip|iso|bin|dmg|pdf)$"},` +
		`{"target": "header", "name": "authorization", "negate": true},` +
		`{"target": "cookie", "name": "session", "negate": true}]]`
)

// settings are environment variables.
type settings map[string]string

func (s settings) environ(more ...settings) []string {
	all := maps.Clone(s)
	for _, m := range more {
		maps.Copy(all, m)
	}
	out := make([]string, 0, len(all))
	for name, value := range all {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// closers end what was started, the last first.
type closers []func() error

func (c *closers) add(end func() error) { *c = append(*c, end) }

// close adds what goes wrong to err.
func (c *closers) close(err *error) {
	for _, end := range slices.Backward(*c) {
		*err = errors.Join(*err, end())
	}
}

// startNATS returns the address of a new NATS server. With a folder it has
// JetStream.
func (b *bench) startNATS(c *closers, folder ...string) (string, error) {
	command := append([]string{b.command("backstage"), "nats"}, folder...)
	p, url, err := process.StartAndRead("the NATS server", os.Environ(), command...)
	if err == nil {
		c.add(p.Stop)
	}
	return url, err
}

// schema is one of its own in the Postgres.
type schema struct {
	name   string
	config *pgx.ConnConfig
}

// newSchema names a schema that a service will make, and that is dropped at
// the end.
func (b *bench) newSchema(c *closers) (schema, error) {
	cfg, err := pgx.ParseConfig(b.database)
	if err != nil {
		return schema{}, errors.New("CCNQ_TEST_DATABASE_URL is not the address of a Postgres") // the error would show a password
	}
	s := schema{name: "load_" + strings.ToLower(rand.Text()), config: cfg}
	cfg.RuntimeParams["search_path"] = s.name
	c.add(s.drop)
	return s, nil
}

// settings are what a service must know.
func (s schema) settings() settings {
	return settings{
		"CCNQ_PG_DATABASE": s.config.Database,
		"CCNQ_PG_HOST":     s.config.Host,
		"CCNQ_PG_PASSWORD": s.config.Password,
		"CCNQ_PG_PORT":     strconv.Itoa(int(s.config.Port)),
		"CCNQ_PG_SCHEMA":   s.name,
		"CCNQ_PG_USER":     s.config.User,
	}
}

func (s schema) drop() error {
	return s.withDatabase(context.Background(), func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{s.name}.Sanitize()+" CASCADE")
		return err
	})
}

func (s schema) withDatabase(ctx context.Context, use func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, s.config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return use(ctx, conn)
}

// coordinated is a NATS server with one coordinator on a schema of its own.
type coordinated struct {
	schema
	nats string
}

// startCoordinator starts a coordinator and what it needs.
func (b *bench) startCoordinator(c *closers, limits settings, how ...string) (*coordinated, error) {
	nats, err := b.startNATS(c)
	if err != nil {
		return nil, err
	}
	return b.coordinate(c, nats, limits, how...)
}

// coordinate starts a coordinator at a NATS server that there is.
func (b *bench) coordinate(c *closers, nats string, limits settings, how ...string) (*coordinated, error) {
	own, err := b.newSchema(c)
	if err != nil {
		return nil, err
	}
	env := settings{"CCNQ_ADMIN_ADDR": "off", "CCNQ_LOG_LEVEL": "warn", "CCNQ_NATS_URL": nats}
	command := append([]string{b.command("backstage"), "coordinator"}, how...)
	p, _, err := process.StartAndRead("the coordinator", env.environ(own.settings(), limits), command...)
	if err != nil {
		return nil, err
	}
	c.add(p.Stop)
	return &coordinated{own, nats}, nil
}

// waiting returns how many requests stand in line.
func (k *coordinated) waiting(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	err = conn.QueryRow(ctx, "SELECT count(*) FROM pending_request").Scan(&n)
	return n, err
}

// postgresCPU returns the CPU time that the coordinators' sessions have used.
func (k *coordinated) postgresCPU(ctx context.Context) (sum time.Duration, err error) {
	err = k.withDatabase(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE application_name = 'ccnq-queue-coordinator'")
		if err != nil {
			return err
		}
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			return err
		}
		for _, pid := range pids {
			name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err != nil || !strings.HasPrefix(string(name), "postgres") {
				return errors.New("the Postgres of CCNQ_TEST_DATABASE_URL does not run on this machine")
			}
			used, err := process.CPU(pid)
			if err != nil {
				return err
			}
			sum += used
		}
		return nil
	})
	return sum, err
}

// edge is a running edge.
type edge struct {
	*process.Process
	addr string // for clients
}

// startEdge starts an edge in front of an origin. With more settings the queue
// may be on; then it returns when the queue decides.
func (b *bench) startEdge(ctx context.Context, c *closers, upstream string, more settings) (*edge, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	env := settings{
		"CCNQ_ADMIN_ADDR":        fmt.Sprintf("127.0.0.1:%d", ports[0]),
		"CCNQ_CLIENT_IP_HEADER":  "X-Forwarded-For",
		"CCNQ_DATA_DIR":          b.dir,
		"CCNQ_PORT":              strconv.Itoa(ports[1]),
		"CCNQ_SHUTDOWN_DELAY_MS": "0",
		"CCNQ_TRUSTED_PROXIES":   "127.0.0.0/8",
		"CCNQ_UPSTREAM_URL":      upstream,
	}
	p, err := process.Start("the edge", env.environ(more), b.command("ccnq-edge"))
	if err != nil {
		return nil, err
	}
	c.add(p.Stop)
	err = p.Await(ctx, "the edge is ready", func() bool { return isReady(ctx, env["CCNQ_ADMIN_ADDR"]) })
	return &edge{Process: p, addr: fmt.Sprintf("127.0.0.1:%d", ports[1])}, err
}

// isReady asks at an admin address whether every part of a service is well.
func isReady(ctx context.Context, admin string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var answer struct {
		Ready bool
		Parts map[string]string
	}
	if json.NewDecoder(resp.Body).Decode(&answer) != nil || !answer.Ready {
		return false
	}
	for _, status := range answer.Parts {
		if status != "ok" {
			return false
		}
	}
	return true
}

// queue returns the settings of an edge whose queue is on.
func (b *bench) queue(nats, rules string) (settings, error) {
	file := b.command(fmt.Sprintf("rules-%d.json", len(rules)))
	return settings{
		"CCNQ_NATS_URL":               nats,
		"CCNQ_QUEUE_ENABLED":          "true",
		"CCNQ_QUEUE_DENYLIST_ENABLED": "false",
		"CCNQ_QUEUE_RULES_FILE":       file,
	}, os.WriteFile(file, []byte(rules), 0o600)
}

// baseline starts what edges are measured against.
func (b *bench) baseline(c *closers, args ...string) (*edge, error) {
	return b.serve(c, "baseline", args...)
}

// serve starts a program that writes its address.
func (b *bench) serve(c *closers, name string, args ...string) (*edge, error) {
	command := append([]string{b.command(name)}, args...)
	p, addr, err := process.StartAndRead("the "+name, os.Environ(), command...)
	if err != nil {
		return nil, err
	}
	c.add(p.Stop)
	return &edge{Process: p, addr: addr}, nil
}

// freePorts returns ports that nobody listens on.
func freePorts(n int) (ports []int, err error) {
	var c closers
	defer c.close(&err)
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		c.add(l.Close)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
