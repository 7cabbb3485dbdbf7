package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// images are those of the set, with the greatest size that they may have in MB.
var images = map[string]float64{
	"edge": 40, "queue-coordinator": 40, "denylist": 40, "ccnq": 60, "init": 60,
}

// up builds the images and starts the whole set from nothing.
func (t *trial) up(ctx context.Context) error {
	begun := time.Now()
	if err := t.buildHelper(ctx); err != nil {
		return err
	}
	if _, err := t.compose(ctx, "build", "-q"); err != nil {
		return err
	}
	t.tell("images built", fmt.Sprintf("%.0f s", time.Since(begun).Seconds()))
	syscall.Sync() // gigabytes on their way to the disk would be what is measured
	for _, name := range []string{"edge", "queue-coordinator", "denylist", "ccnq", "init"} {
		out, err := t.run(ctx, "image", "inspect", "-f", "{{.Size}}", "ccnq-test/"+name+":latest")
		if err != nil {
			return err
		}
		size, err := strconv.ParseFloat(out, 64)
		if err != nil {
			return err
		}
		t.note("size of image "+name, fmt.Sprintf("%.1f MB", size/1e6), fmt.Sprintf("≤ %.0f MB", images[name]), size/1e6 <= images[name])
	}
	begun = time.Now()
	// Not --wait, which takes the end of init and migrate for a failure.
	if _, err := t.compose(ctx, "up", "-d"); err != nil {
		return err
	}
	if err := t.allHealthy(ctx); err != nil {
		return err
	}
	if err := until(ctx, "limits hold", func() (bool, error) { return t.clients.limitsHold(ctx), nil }); err != nil {
		return err
	}
	t.note("the set from nothing until limits hold", fmt.Sprintf("%.1f s", time.Since(begun).Seconds()), "≤ 90 s", time.Since(begun) <= 90*time.Second)
	return t.scale(ctx, 3)
}

// scale starts edges and waits until the front has found them.
func (t *trial) scale(ctx context.Context, n int) error {
	if _, err := t.compose(ctx, "up", "-d", "--no-deps", "--no-recreate", "--scale", fmt.Sprintf("edge=%d", n), "edge"); err != nil {
		return err
	}
	// A moment before an edge is ready, nobody can find it.
	s := t.clients.steady(ctx)
	defer s.end()
	ids, err := t.containers(ctx, "edge")
	if err != nil {
		return err
	}
	slowest := 0.0
	for _, id := range ids {
		address, err := t.addressOn(ctx, id, "proxy")
		if err != nil {
			return err
		}
		var ready time.Time
		if err := until(ctx, "the front finds edge "+id[:12], func() (bool, error) {
			if ready.IsZero() {
				if page, _ := t.get(ctx, address+":9180", "/readyz"); !strings.Contains(page, "200 OK") {
					return false, nil
				}
				ready = time.Now()
			}
			page, err := t.get(ctx, address+":9180", "/metrics")
			return strings.Contains(page, `ccnq_requests_total{status="2xx"`), err
		}); err != nil {
			return err
		}
		slowest = max(slowest, time.Since(ready).Seconds())
	}
	t.note(fmt.Sprintf("scaled to %d edges; the slowest ready one found by the front after", n), fmt.Sprintf("%.1f s", slowest), "≤ 2 s", len(ids) == n && slowest <= 2)
	return nil
}

// denials is the number of denials in the database.
func (t *trial) denials(ctx context.Context) (int64, error) {
	out, err := t.sql(ctx, "SELECT coalesce(sum(count), 0) FROM queue.ip_denial_count")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(out, 10, 64)
}

// balance waits until the database has the denials that clients were told of
// since it was looked at last, and returns what is missing; surplus ones are
// negative.
func (t *trial) balance(ctx context.Context) (int64, error) {
	const settle = 15 * time.Second
	want := t.clients.denied.Swap(0)
	var got int64
	var err error
	deadline := time.Now().Add(settle)
	for stable := 0; stable < 3; {
		now, e := t.denials(ctx)
		if e != nil {
			err = e
		} else if err = nil; now-t.counted == want && got == now {
			stable++ // and does not become more
		} else {
			stable = 0
		}
		got = now
		if time.Now().After(deadline) {
			break
		}
		wait(ctx, 300*time.Millisecond)
	}
	missing := want - (got - t.counted)
	t.counted = got
	return missing, err
}

// floods is how often a flood is tried in which requests passed because the
// database stood still: it says nothing of limits.
const floods = 3

// flood lets many addresses of many networks ask for much more than there is.
func (t *trial) flood(ctx context.Context) error {
	// The first look starts the count.
	if _, err := t.balance(ctx); err != nil {
		return err
	}
	for n := 1; ; n++ {
		passed, err := t.floodOnce(ctx)
		if err != nil {
			return err
		}
		if passed == "" || n == floods {
			t.note("flood: requests that passed undecided", cmp.Or(passed, "0"), "0", passed == "")
			return t.blocksReachAll(ctx)
		}
		t.tell("flood: the database stood still, once more; passed undecided", passed)
		syscall.Sync()
	}
}

// floodOnce returns which requests passed undecided.
func (t *trial) floodOnce(ctx context.Context) (passed string, err error) {
	const networks, perNetwork, requests, atOnce = 8, 25, 12_000, 96
	if err := t.clients.forget(ctx); err != nil {
		return "", err
	}
	before, err := t.undecided(ctx)
	if err != nil {
		return "", err
	}
	s := t.clients.steady(ctx)
	begun := time.Now()
	flood := t.clients.flood(ctx, networks, perNetwork, requests, atOnce)
	took := time.Since(begun)
	wrong, figure := s.end()
	seen, err := t.clients.seen(ctx)
	if err != nil {
		return "", err
	}
	t.tell("flood of "+strconv.Itoa(networks*perNetwork)+" addresses through the front, over 3 edges", fmt.Sprintf(
		"%d requests in %.1f s: %d served, %d refused, %d blocked", requests, took.Seconds(), flood.of(served), flood.of(refused), flood.of(blocked)))
	after, err := t.undecided(ctx)
	if err != nil {
		return "", err
	}
	const over = "flood: groups above their cap, over all edges"
	if passed = after.since(before); passed == "" {
		t.note(over, strconv.Itoa(seen.over()), "0", seen.over() == 0)
	} else {
		t.tell(over, strconv.Itoa(seen.over()))
	}
	t.note("flood: requests without an answer", strconv.FormatInt(flood.of(failed), 10), "0", flood.of(failed) == 0)
	t.note("flood: other clients' requests that were not served", figure, "0", wrong == 0)
	missing, err := t.balance(ctx)
	if err != nil {
		return "", err
	}
	t.note("flood: denials lost or doubled", strconv.FormatInt(missing, 10), "0", missing == 0)
	return passed, nil
}

// blocksReachAll requires that blocks are in force at every edge, and that who
// watches has seen them.
func (t *trial) blocksReachAll(ctx context.Context) error {
	target, err := t.sql(ctx, "SELECT ip FROM queue.ip_block WHERE blocked_until > now() LIMIT 1")
	if err != nil {
		return err
	}
	if target == "" {
		return errors.New("nobody is blocked")
	}
	ids, err := t.containers(ctx, "edge")
	if err != nil {
		return err
	}
	refusing := 0
	for _, id := range ids {
		address, err := t.addressOn(ctx, id, "proxy")
		if err != nil {
			return err
		}
		page, err := t.get(ctx, address+":3000", "/page", "X-Forwarded-For: "+target)
		if err != nil {
			return err
		}
		if strings.Contains(page, " 429 ") && !strings.Contains(page, "Retry-After: 5\r") {
			refusing++
		}
	}
	t.note("flood: edges that refuse a blocked address", fmt.Sprintf("%d of %d", refusing, len(ids)), "all", refusing == len(ids) && len(ids) == 3)
	inForce, err := t.sql(ctx, "SELECT count(*) FROM queue.ip_block WHERE blocked_until > now()")
	if err != nil {
		return err
	}
	var told int
	err = until(ctx, "the alert subscriber has seen the blocks", func() (bool, error) {
		told, err = t.blocksTold(ctx)
		return strconv.Itoa(told) == inForce, err
	})
	t.note("flood: blocks that the alert subscriber has seen", fmt.Sprintf("%d of %s", told, inForce), "all", err == nil)
	return nil
}

// blocksTold counts the blocks that the alert subscriber has printed.
func (t *trial) blocksTold(ctx context.Context) (int, error) {
	ids, err := t.containers(ctx, "alerts")
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	out, err := t.run(ctx, "logs", ids[0])
	if err != nil {
		return 0, err
	}
	targets := map[string]bool{}
	for line := range strings.Lines(out) {
		var event struct{ Type, Subject string }
		if json.Unmarshal([]byte(line), &event) == nil && event.Type == "ccnq.v1.blocked" {
			targets[event.Subject] = true
		}
	}
	return len(targets), nil
}
