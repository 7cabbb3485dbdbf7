package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// down is how long a part stays away.
	down = 3 * time.Second
	// cut is how long a part is cut off from NATS: longer than a lease.
	cut = 8 * time.Second
	// frozen is how long Postgres stands still.
	frozen = 20 * time.Second
	// back is within how much time limits must hold again.
	back = 20 * time.Second
)

// fault is something that goes wrong while people are using the site.
type fault struct {
	name string
	// breakIt and mend do it and undo it.
	breakIt, mend func(context.Context) error
	// lasts is how long it goes on.
	lasts time.Duration
	// failsOpen says that the limits cannot hold meanwhile.
	failsOpen bool
	// mayFail says that requests may go unanswered: the part is one that clients
	// are connected to.
	mayFail bool
	// mayLose says that the denials of an edge's last interval may be lost.
	mayLose bool
}

// suffer lets a fault happen under load and notes what it did.
func (t *trial) suffer(ctx context.Context, f fault) error {
	if err := t.clients.forget(ctx); err != nil {
		return err
	}
	passedBefore, err := t.undecided(ctx)
	if err != nil {
		return err
	}
	s := t.clients.steady(ctx)
	pressing, release := context.WithCancel(ctx)
	pressed := make(chan struct{})
	go func() { // somebody is always being refused
		defer close(pressed)
		for pressing.Err() == nil {
			t.clients.flood(pressing, 5, 20, 200, 40)
			wait(pressing, 500*time.Millisecond)
		}
	}()
	wait(ctx, time.Second)
	err = f.breakIt(ctx)
	wait(ctx, f.lasts)
	if err == nil {
		err = f.mend(ctx)
	}
	mended := time.Now()
	if err != nil {
		release()
		<-pressed
		s.end()
		return fmt.Errorf("%s: %w", f.name, err)
	}
	covered := until(ctx, "limits hold again", func() (bool, error) { return t.clients.limitsHold(ctx), nil })
	took := time.Since(mended)
	release()
	<-pressed
	wrong, figure := s.end()
	seen, err := t.clients.seen(ctx)
	if err != nil {
		return err
	}
	t.note(f.name+": limits hold again after", fmt.Sprintf("%.1f s", took.Seconds()), "≤ 20 s", covered == nil && took <= back)
	if f.mayFail {
		t.tell(f.name+": other clients' requests that were not served", figure)
	} else {
		t.note(f.name+": other clients' requests that were not served", figure, "0", wrong == 0)
	}
	if f.failsOpen {
		t.tell(f.name+": groups above their cap meanwhile (requests pass)", strconv.Itoa(seen.over()))
	} else {
		figure, err := t.over(ctx, seen, passedBefore)
		if err != nil {
			return err
		}
		t.note(f.name+": groups above their cap", figure, "0", seen.over() == 0)
	}
	missing, err := t.balance(ctx)
	if err != nil {
		return err
	}
	if f.mayLose {
		t.tell(f.name+": denials lost (of its last interval)", strconv.FormatInt(missing, 10))
	} else {
		t.note(f.name+": denials lost or doubled", strconv.FormatInt(missing, 10), "0", missing == 0)
	}
	return nil
}

// causes counts the requests on which nobody decided, by cause.
type causes map[string]int

// undecided asks the edges.
func (t *trial) undecided(ctx context.Context) (causes, error) {
	ids, err := t.containers(ctx, "edge")
	if err != nil {
		return nil, err
	}
	all := causes{}
	for _, id := range ids {
		address, err := t.addressOn(ctx, id, "proxy")
		if err != nil {
			return nil, err
		}
		page, err := t.get(ctx, address+":9180", "/metrics")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(page) {
			rest, ok := strings.CutPrefix(line, `ccnq_queue_fail_open_total{cause="`)
			cause, count, _ := strings.Cut(rest, `"} `)
			if n, err := strconv.Atoi(strings.TrimSpace(count)); ok && err == nil {
				all[cause] += n
			}
		}
	}
	return all, nil
}

// over is how many groups were above their cap, and why requests passed since
// some were counted.
func (t *trial) over(ctx context.Context, seen seen, before causes) (string, error) {
	figure := strconv.Itoa(seen.over())
	if seen.over() == 0 {
		return figure, nil
	}
	passed, err := t.undecided(ctx)
	return figure + " (passed undecided: " + passed.since(before) + ")", err
}

// since is what has become more, in words.
func (c causes) since(before causes) string {
	var more []string
	for _, cause := range slices.Sorted(maps.Keys(c)) {
		if n := c[cause] - before[cause]; n > 0 {
			more = append(more, fmt.Sprintf("%s %d", cause, n))
		}
	}
	return strings.Join(more, ", ")
}

// kill kills a container of each kind, and starts it again.
func (t *trial) kill(ctx context.Context) error {
	for _, f := range []struct {
		service string
		fault
	}{
		{"edge", fault{mayFail: true, mayLose: true}},
		{"queue-coordinator", fault{}},
		{"denylist", fault{}},
		{"nats", fault{failsOpen: true}},
		{"postgres", fault{failsOpen: true}},
		{"front", fault{mayFail: true}},
	} {
		ids, err := t.containers(ctx, f.service)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return fmt.Errorf("no container of %s", f.service)
		}
		f.name, f.lasts = f.service+" killed", down
		f.breakIt = func(ctx context.Context) error { return t.docker(ctx, "kill", ids[0]) }
		f.mend = func(ctx context.Context) error {
			if err := t.docker(ctx, "start", ids[0]); err != nil {
				return err
			}
			return t.healthy(ctx, f.service)
		}
		if err := t.suffer(ctx, f.fault); err != nil {
			return err
		}
	}
	return nil
}

// docker runs docker for its effect.
func (t *trial) docker(ctx context.Context, args ...string) error {
	_, err := t.run(ctx, args...)
	return err
}

// outage freezes the database and cuts parts off from NATS.
func (t *trial) outage(ctx context.Context) error {
	postgres, err := t.containers(ctx, "postgres")
	if err != nil {
		return err
	}
	edges, err := t.containers(ctx, "edge")
	if err != nil {
		return err
	}
	coordinators, err := t.containers(ctx, "queue-coordinator")
	if err != nil {
		return err
	}
	bus := t.networkOf("bus")
	for _, f := range []fault{
		{
			name: "postgres frozen for 20 s", lasts: frozen, failsOpen: true,
			breakIt: func(ctx context.Context) error { return t.docker(ctx, "pause", postgres[0]) },
			mend:    func(ctx context.Context) error { return t.docker(ctx, "unpause", postgres[0]) },
		},
		{
			name: "one edge cut off from NATS", lasts: cut, failsOpen: true,
			breakIt: func(ctx context.Context) error { return t.docker(ctx, "network", "disconnect", bus, edges[0]) },
			mend: func(ctx context.Context) error {
				return t.docker(ctx, "network", "connect", "--alias", "edge", bus, edges[0])
			},
		},
		{
			name: "one coordinator cut off from NATS", lasts: cut,
			breakIt: func(ctx context.Context) error {
				return t.docker(ctx, "network", "disconnect", bus, coordinators[0])
			},
			mend: func(ctx context.Context) error {
				return t.docker(ctx, "network", "connect", "--alias", "queue-coordinator", bus, coordinators[0])
			},
		},
	} {
		if err := t.suffer(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// roll replaces every edge by a new one.
func (t *trial) roll(ctx context.Context) error {
	return t.suffer(ctx, fault{
		name:    "all edges replaced, one after the other",
		breakIt: func(context.Context) error { return nil },
		mend:    func(ctx context.Context) error { return t.replaceAll(ctx, "edge") },
	})
}

// replaceAll replaces the containers of a service, as the README of deploy says.
func (t *trial) replaceAll(ctx context.Context, service string) error {
	old, err := t.containers(ctx, service)
	if err != nil {
		return err
	}
	for _, id := range old {
		if _, err := t.compose(ctx, "up", "-d", "--no-deps", "--no-recreate", "--scale", fmt.Sprintf("%s=%d", service, len(old)+1), service); err != nil {
			return err
		}
		if err := t.healthy(ctx, service); err != nil {
			return err
		}
		wait(ctx, 2*time.Second) // the front finds an edge
		if err := t.docker(ctx, "stop", "-t", "45", id); err != nil {
			return err
		}
		code, err := t.run(ctx, "inspect", "-f", "{{.State.ExitCode}}", id)
		if err != nil {
			return err
		}
		if strings.TrimSpace(code) != "0" {
			return fmt.Errorf("a container of %s ended with exit code %s", service, code)
		}
		if err := t.docker(ctx, "rm", "-v", id); err != nil {
			return err
		}
	}
	return nil
}
