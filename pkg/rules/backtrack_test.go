package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/stretchr/testify/require"
)

// slowTarget takes slowRules a time that grows exponentially with its length.
var slowTarget = "/" + strings.Repeat("a", 5000) + "!"

// patient takes away the time limit, so that a busy machine changes nothing.
func patient(set *Set) *Set {
	for _, g := range set.groups {
		for _, c := range g {
			if c.slow != nil {
				c.slow.limit, c.slow.re.MatchTimeout = time.Hour, regexp2.DefaultMatchTimeout
			}
		}
	}
	return set
}

const slowRules = `[[{"target":"path","matchType":"regex","value":"^/(?=(a+)+$)"}]]`

func TestBacktracking(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		expr        string
		match, miss string
	}{
		{`^/(?!admin)`, "/user", "/admin"},
		{`(?<=/)x$`, "/x", "/ax"},
		{`^/(.)\1$`, "/aa", "/ab"},
		{`^/\u0061$`, "/a", "/b"},
		{`^/[^]$`, "/a", "/"},
		{`^/a{1001}$`, "/" + strings.Repeat("a", 1001), "/" + strings.Repeat("a", 1000)},
	} {
		set := patient(mustParse(t, `[[{"target":"path","matchType":"regex","value":"`+strings.ReplaceAll(tt.expr, `\`, `\\`)+`"}]]`))
		require.Len(t, set.Backtracking(), 1)
		require.Contains(t, set.Backtracking()[0], "rules.json: group 1, condition 1, value: pattern ")
		require.True(t, set.Match(request(t, tt.match), OnTimeoutMiss), "%s on %s", tt.expr, tt.match)
		require.False(t, set.Match(request(t, tt.miss), OnTimeoutMatch), "%s on %s", tt.expr, tt.miss)
		require.Zero(t, set.Timeouts())
	}
}

func TestBacktrackingIsOnlyForWhatRE2DoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{`\d+`, `a|b`, `(?<n>a)`, `\/x\-y`, `^\w+$`} {
		p, slow, err := compilePattern(expr)
		require.NoError(t, err, expr)
		require.Nil(t, slow, expr)
		require.NotNil(t, p, expr)
	}
	_, _, err := compilePattern(strings.Repeat("(", 2000) + strings.Repeat(")", 2000))
	require.ErrorContains(t, err, "expression nests too deeply")
}

func TestBacktrackingPatternsAreBounded(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat("(?:a|b", n-1) + "(?=x)" + strings.Repeat(")", n-1) }
	long := func(n int) string { return "(?=x)" + strings.Repeat("a", n-len("(?=x)")) }
	for _, expr := range []string{
		nested(MaxBacktrackNesting), long(MaxBacktrackPattern),
		`(?=x)` + strings.Repeat(`\(`, 20), `(?=x)[` + strings.Repeat(`(`, 20) + `]`, // no groups
	} {
		_, slow, err := compilePattern(expr)
		require.NoError(t, err)
		require.NotNil(t, slow)
	}
	_, _, err := compilePattern(nested(MaxBacktrackNesting + 1))
	require.ErrorContains(t, err, "too nested for the backtracking engine: more than 10 levels")
	_, _, err = compilePattern(nested(250))
	require.ErrorContains(t, err, "too nested")
	_, _, err = compilePattern(long(MaxBacktrackPattern + 1))
	require.ErrorContains(t, err, "too long for the backtracking engine: more than 4096 bytes")
}

// What runs out of time counts as the purpose says, negated or not.
func TestSlowPattern(t *testing.T) {
	t.Parallel()
	for _, negate := range []string{"", `,"negate":true`} {
		set := mustParse(t, strings.Replace(slowRules, `"}`, `"`+negate+`}`, 1))
		require.Len(t, set.Backtracking(), 1)
		r := request(t, slowTarget)
		require.True(t, set.Match(r, OnTimeoutMatch))
		require.EqualValues(t, 1, set.Timeouts())
		require.False(t, set.Match(r, OnTimeoutMiss))
		require.EqualValues(t, 2, set.Timeouts())

		patient(set)
		quick := request(t, "/aaa!")
		require.Equal(t, negate != "", set.Match(quick, OnTimeoutMatch))
		require.Equal(t, negate != "", set.Match(quick, OnTimeoutMiss))
		require.EqualValues(t, 2, set.Timeouts())
	}
}

func TestLongInputIsNotBacktracked(t *testing.T) {
	t.Parallel()
	set := patient(mustParse(t, `[[{"target":"header","name":"user-agent","matchType":"regex","value":"^x(?!y)"}]]`))
	fits := request(t, "/", "User-Agent: "+strings.Repeat("x", MaxBacktrackInput))
	require.True(t, set.Match(fits, OnTimeoutMiss))
	require.Zero(t, set.Timeouts())
	long := request(t, "/", "User-Agent: "+strings.Repeat("x", MaxBacktrackInput+1))
	require.False(t, set.Match(long, OnTimeoutMiss))
	require.True(t, set.Match(long, OnTimeoutMatch))
	require.EqualValues(t, 2, set.Timeouts())
}

// Once the time of a request is spent, no further search begins, however many
// values it brings.
func TestBudgetIsPerRequest(t *testing.T) {
	t.Parallel()
	_, slow, err := compilePattern(`x(?!y)`)
	require.NoError(t, err)
	slow.limit, slow.re.MatchTimeout = time.Hour, regexp2.DefaultMatchTimeout
	var b budget
	require.Equal(t, yes, slow.match("x", &b))
	require.Equal(t, no, slow.match("xy", &b))
	require.False(t, b.overrun)
	b.spent = slow.limit
	require.Equal(t, unknown, slow.match("x", &b))
	require.True(t, b.overrun)
}

// Cheap conditions and groups decide first, so a slow pattern is run only if
// its answer matters.
func TestSlowPatternIsTriedLast(t *testing.T) {
	t.Parallel()
	slow := strings.Trim(slowRules, "[]")
	r := request(t, slowTarget+"?a=1")

	set := mustParse(t, `[[`+slow+`,{"target":"query","name":"b"}]]`)
	require.False(t, set.Match(r, OnTimeoutMatch))
	require.Zero(t, set.Timeouts())

	set = mustParse(t, `[[`+slow+`],[{"target":"query","name":"a"}]]`)
	require.True(t, set.Match(r, OnTimeoutMiss))
	require.Zero(t, set.Timeouts())
}
