package rules

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"sync"
	"time"

	"github.com/dlclark/regexp2/v2"
)

const (
	// BacktrackLimit is about the time that backtracking patterns may take for
	// one request. A search is cut off after this time, and none is begun once
	// it is spent, so that the worst case is twice the limit. Under load the
	// engine may notice some milliseconds late.
	BacktrackLimit = 5 * time.Millisecond

	// MaxBacktrackInput is the length in bytes of the longest value that a
	// backtracking pattern is run on. A longer one counts as out of time.
	MaxBacktrackInput = 8 << 10

	// MaxBacktrackPattern is the length in bytes of the longest backtracking
	// pattern.
	MaxBacktrackPattern = 4 << 10

	// MaxBacktrackNesting is how deep groups of a backtracking pattern may
	// nest. The engine's time to compile nested alternatives doubles with each
	// level.
	MaxBacktrackNesting = 10

	// clockPeriod is how often the engine looks at the time.
	clockPeriod = time.Millisecond
)

// backtracker is a pattern that only the ECMAScript engine can run.
type backtracker struct {
	re    *regexp2.Regexp
	limit time.Duration // BacktrackLimit; longer in tests of something else
}

// budget is what the backtracking patterns of one request have used up.
type budget struct {
	spent   time.Duration
	overrun bool // a limit cut a search short or prevented it
}

func (p *backtracker) match(value string, b *budget) verdict {
	if b.spent >= p.limit || len(value) > MaxBacktrackInput {
		b.overrun = true
		return unknown
	}
	start := time.Now()
	found, err := p.re.MatchString(value)
	b.spent += time.Since(start)
	switch {
	case err != nil: // out of time or of stack; the text holds the value and is dropped
		b.spent, b.overrun = p.limit, true
		return unknown
	case found:
		return yes
	default:
		return no
	}
}

// setClock makes the engine's clock, which is one for the process, fine enough
// for BacktrackLimit; by default it ticks every 100 ms.
var setClock = sync.OnceFunc(func() { regexp2.SetTimeoutCheckPeriod(clockPeriod) })

// compileBacktracker compiles an expression that RE2 refused with re2Err. An
// expression that is merely too large for RE2 is not given to an engine that
// is worse at large ones.
func compileBacktracker(expr string, re2Err error) (*backtracker, error) {
	if e, ok := errors.AsType[*syntax.Error](re2Err); ok &&
		(e.Code == syntax.ErrLarge || e.Code == syntax.ErrNestingDepth) {
		return nil, fmt.Errorf("pattern %s: %s", clip(expr), e.Code)
	}
	if len(expr) > MaxBacktrackPattern {
		return nil, fmt.Errorf("pattern %s is not RE2 (%s), and too long for the backtracking engine: more than %d bytes",
			clip(expr), reason(re2Err), MaxBacktrackPattern)
	}
	if nesting(expr) > MaxBacktrackNesting {
		return nil, fmt.Errorf("pattern %s is not RE2 (%s), and too nested for the backtracking engine: more than %d levels",
			clip(expr), reason(re2Err), MaxBacktrackNesting)
	}
	re, err := regexp2.Compile(expr, regexp2.ECMAScript)
	if err != nil {
		return nil, fmt.Errorf("pattern %s is neither RE2 (%s) nor ECMAScript", clip(expr), reason(re2Err))
	}
	setClock()
	re.MatchTimeout = BacktrackLimit
	return &backtracker{re, BacktrackLimit}, nil
}

// reason is the text of a syntax error without the whole expression.
func reason(err error) string {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Sprintf("%s: %s", e.Code, clip(e.Expr))
	}
	return err.Error()
}

// nesting returns how deep the groups of an ECMAScript expression nest.
func nesting(expr string) int {
	depth, deepest, inClass := 0, 0, false
	for i := 0; i < len(expr); i++ {
		switch c := expr[i]; {
		case c == '\\':
			i++ // whatever follows stands for itself
		case inClass:
			inClass = c != ']'
		case c == '[':
			inClass = true
		case c == '(':
			depth++
			deepest = max(deepest, depth)
		case c == ')':
			depth--
		}
	}
	return deepest
}
