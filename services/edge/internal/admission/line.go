package admission

import (
	"container/list"

	"github.com/ccnq/ccnq/pkg/wire"
)

// line is the queue of one group that this edge keeps by itself while no
// coordinator answers, first come first served. Its group's mutex guards it.
type line struct {
	turns     list.List // of chan struct{}, closed when granted
	maxServed int
}

// place is what joining the line gave: a place at once, a turn to wait for, or
// nothing, when the line is full.
type place struct {
	granted bool
	turn    chan struct{}
	element *list.Element
}

// join takes a place counted by this edge alone, or waits for one.
func (gr *group) join(limits wire.Limits) place {
	gr.mu.Lock()
	defer gr.mu.Unlock()
	gr.line.maxServed = limits.MaxServed
	if gr.held < limits.MaxServed && gr.line.turns.Len() == 0 {
		gr.held++
		return place{granted: true}
	}
	if gr.line.turns.Len() >= limits.MaxPending {
		return place{}
	}
	turn := make(chan struct{})
	return place{turn: turn, element: gr.line.turns.PushBack(turn)}
}

// quit leaves the line. It reports false when the turn had come already: the
// place is the caller's then.
func (gr *group) quit(p place) bool {
	gr.mu.Lock()
	defer gr.mu.Unlock()
	select {
	case <-p.turn:
		return false
	default:
		gr.line.turns.Remove(p.element)
		return true
	}
}

// grant gives turns to those who wait, as far as there are places beside the
// held ones, and returns how many it gave.
func (l *line) grant(held int) int {
	granted := 0
	for held+granted < l.maxServed && l.turns.Len() > 0 {
		turn, _ := l.turns.Remove(l.turns.Front()).(chan struct{})
		close(turn)
		granted++
	}
	return granted
}
