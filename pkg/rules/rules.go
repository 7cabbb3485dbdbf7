package rules

import (
	"net/http"
	"sync/atomic"
)

// Purpose says what a condition counts as when its pattern cannot be run to
// the end (see [BacktrackLimit]).
type Purpose int

const (
	// OnTimeoutMatch lets the condition hold: for a gate that restrains, such
	// as the queue.
	OnTimeoutMatch Purpose = iota
	// OnTimeoutMiss lets the condition not hold: for a gate that gives
	// something away, such as the cache.
	OnTimeoutMiss
)

// Set is a parsed ruleset. It does not change and is safe for concurrent use.
// Make one with [Parse] or [Load].
type Set struct {
	groups       []group
	backtracking []string
	timeouts     atomic.Uint64
}

// group is a list of conditions that must all hold; it is never empty. The
// cheap ones come first.
type group []condition

// Match reports whether the ruleset matches r. It reads r and keeps nothing of
// it. r must be a request as a server receives it: URL and Header set, header
// names in canonical form. The time is linear in the size of the request head,
// apart from the limited work of backtracking patterns.
func (s *Set) Match(r *http.Request, p Purpose) bool {
	var b budget
	matched := false
	for _, g := range s.groups {
		if g.holds(r, p, &b) {
			matched = true
			break
		}
	}
	if b.overrun {
		s.timeouts.Add(1)
	}
	return matched
}

func (g group) holds(r *http.Request, p Purpose, b *budget) bool {
	for i := range g {
		if !g[i].holds(r, p, b) {
			return false
		}
	}
	return true
}

// Empty reports whether the ruleset has no condition, so that it can never
// match.
func (s *Set) Empty() bool { return len(s.groups) == 0 }

// Backtracking describes each pattern that the ECMAScript engine runs: where
// it stands, and the pattern. It is meant for a message at startup, because
// such a pattern may cost much more than others.
func (s *Set) Backtracking() []string { return append([]string(nil), s.backtracking...) }

// Timeouts returns the number of calls of Match in which a backtracking
// pattern was cut short by a limit.
func (s *Set) Timeouts() uint64 { return s.timeouts.Load() }
