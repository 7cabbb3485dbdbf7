package admission

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/ccnq/ccnq/pkg/wire"
)

// script is one random day at the gate.
type script struct {
	seed     uint64
	trouble  int
	fallback bool
	monitor  bool
	crash    bool
	outage   time.Duration
	visits   []scripted
}

type scripted struct {
	pause, exchange, patience time.Duration
	group                     int
}

var scripts = rapid.Custom(func(t *rapid.T) script {
	ms := func(most int, label string) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Millisecond
	}
	s := script{
		seed:     rapid.Uint64().Draw(t, "seed"),
		trouble:  rapid.SampledFrom([]int{0, 10, 30, 60}).Draw(t, "trouble"),
		fallback: rapid.Bool().Draw(t, "fallback"),
		monitor:  rapid.IntRange(0, 4).Draw(t, "monitor") == 0,
		crash:    rapid.IntRange(0, 2).Draw(t, "crash") == 0,
		outage:   ms(5000, "outage") * time.Duration(rapid.IntRange(0, 1).Draw(t, "any outage")),
	}
	for range rapid.IntRange(5, 40).Draw(t, "visits") {
		s.visits = append(s.visits, scripted{
			pause:    ms(60, "pause"),
			exchange: ms(800, "exchange"),
			patience: ms(4000, "patience"),
			group:    rapid.IntRange(0, 1).Draw(t, "group"),
		})
	}
	return s
})

// Whatever gets lost or overtaken, nobody waits longer than stated, what the
// store admitted never exceeds the cap, and in the end nobody holds anything.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := scripts.Draw(rt, "script")
		if problem := perform(t, s); problem != "" {
			rt.Fatal(problem)
		}
	})
}

func perform(t *testing.T, s script) (problem string) {
	t.Helper()
	run(t, func(o *Options) { o.Fallback, o.Monitor, o.PendingTimeout = s.fallback, s.monitor, 3*time.Second },
		func(w *world) { problem = w.perform(s) })
	return problem
}

func (w *world) perform(s script) string {
	store := newSimStore(w.co, testLimits, s.seed, s.trouble)
	stage := &stage{world: w, script: s, serving: map[int]int{}}
	var visits sync.WaitGroup
	for i, visit := range s.visits {
		v := w.enter([]netip.Prefix{groupA, groupB}[visit.group], nil)
		visits.Go(func() { stage.play(visit, v) })
		pass(visit.pause)
		if i == len(s.visits)/2 {
			if s.crash {
				store.crash()
			}
			store.freeze(s.outage > 0)
			time.AfterFunc(s.outage, func() { store.freeze(false) })
		}
	}
	visits.Wait()
	store.calm()
	pass(10 * time.Second)
	if w.gate.Degraded() != "" {
		return "still degraded"
	}
	if left := w.leftovers(); left != "" {
		return left
	}
	if n := store.left(); n > 0 {
		return fmt.Sprintf("the store keeps %d requests", n)
	}
	if store.overfull > 0 {
		return "the simulation is wrong"
	}
	return stage.problem
}

// stage counts who is served.
type stage struct {
	world  *world
	script script

	mu      sync.Mutex
	serving map[int]int
	problem string
}

// bound is the longest that a request may be held up, see the package
// documentation.
func (s *stage) bound() time.Duration {
	o := s.world.gate.opts
	return o.PendingTimeout + 2*o.AdmitTimeout
}

func (s *stage) play(visit scripted, v *visitor) {
	impatient := time.AfterFunc(visit.patience, v.leave)
	defer impatient.Stop()
	<-v.decided
	s.change(visit.group, v.outcome, 1)
	if v.outcome.Pass {
		<-time.After(visit.exchange)
	}
	s.change(visit.group, v.outcome, -1)
	v.ticket.Done()
}

func (s *stage) change(group int, outcome Outcome, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := testLimits.MaxServed
	switch {
	case outcome.Waited > s.bound():
		s.problem = fmt.Sprintf("%+v waited too long", outcome)
	case s.script.monitor && !outcome.Pass && outcome.Reason != ClientGone:
		s.problem = fmt.Sprintf("%+v in monitor mode", outcome)
	case outcome.Reason == Admitted, outcome.Reason == Promoted:
		// The store forgot nobody and the edge never counted alone: so what it
		// admitted keeps the cap, whatever else happened on the way.
		s.serving[group] += by
		if s.serving[group] > limit && !s.script.crash && !s.script.fallback {
			s.problem = fmt.Sprintf("%d are served of %d", s.serving[group], limit)
		}
	}
}

// Promotions, questions and releases meet in every order that the scheduler
// finds.
func TestModelOfManyAtOnce(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		const places, n = 5, 2000
		limits := wire.Limits{MaxServed: places, MaxPending: n}
		store := newSimStore(w.co, limits, 1, 0)
		var mu sync.Mutex
		serving, most := 0, 0
		var visits sync.WaitGroup
		for range n {
			v := w.enter(groupA, nil)
			visits.Go(func() {
				<-v.decided
				mu.Lock()
				serving++
				most = max(most, serving)
				mu.Unlock()
				mu.Lock()
				serving--
				mu.Unlock()
				v.ticket.Done()
			})
		}
		visits.Wait()
		synctest.Wait()
		if store.left() > 0 || most > places {
			w.t.Errorf("%d left, %d of %d served at once", store.left(), most, places)
		}
		w.clean()
	})
}
