package qos

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

type goldenScenario struct {
	Name    string
	Seed    int
	Options goldenOptions
	Steps   []goldenStep
	State   struct{ Hosts, IPs, Subnets, Violations []string }
	Checks  []goldenStep
}

type goldenStep struct {
	request
	At    int64   `json:"at_ms"`
	Lag   float64 `json:"lag_ms"`
	Op    string
	Arg   *string
	Track *bool
	N     *int
	Every int64 `json:"every_ms"`
	// Expect is a reason or a boolean, the same for each repetition; ExpectRuns is
	// pairs of a number of repetitions and what they give.
	Expect     any
	ExpectRuns [][2]any `json:"expect_runs"`
}

// expected is what each repetition is to give.
func (s goldenStep) expected(t *testing.T) []any {
	t.Helper()
	if s.ExpectRuns == nil {
		outcomes := make([]any, or(s.N, 1))
		for i := range outcomes {
			outcomes[i] = s.Expect
		}
		return outcomes
	}
	var outcomes []any
	for _, run := range s.ExpectRuns {
		for range int(run[0].(float64)) {
			outcomes = append(outcomes, run[1])
		}
	}
	require.Len(t, outcomes, or(s.N, 1))
	return outcomes
}

// do asks the limiter what the step asks.
func (s goldenStep) do(l *Limiter) any {
	track := or(s.Track, true)
	if s.Op == "" {
		return string(l.Decide(l.Actor(s.http())))
	}
	if s.Arg == nil {
		kind := map[string]Kind{"isBadHost": Host, "isBadIp": IP, "isBadSubnet": Subnet}[s.Op]
		return l.IsBad(kind, l.Actor(s.http()), track)
	}
	switch s.Op {
	case "isBadHost":
		return l.IsBadHost(*s.Arg, track)
	case "isBadIp":
		return l.IsBadIP(*s.Arg, track)
	case "isBadSubnet":
		return l.IsBadSubnet(*s.Arg, track)
	}
	return fmt.Sprintf("no operation %q", s.Op)
}

func runGoldenSteps(t *testing.T, name string, l *Limiter, w *world, steps []goldenStep) {
	t.Helper()
	for i, step := range steps {
		w.setLagMillis(step.Lag)
		for n, expected := range step.expected(t) {
			w.ms.Store(step.At + int64(n)*step.Every)
			if got := step.do(l); got != expected {
				require.Equal(t, expected, got, "%s: step %d, repetition %d", name, i, n)
			}
		}
	}
}

// TestGoldenScenarios runs every file that is not of another kind.
func TestGoldenScenarios(t *testing.T) {
	t.Parallel()
	ran := 0
	for name, data := range goldenFiles(t, "") {
		if !isScenario(name) {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, s := range readGolden[goldenScenario](t, data) {
				l, w := newLimiter(t, s.Options.options())
				runGoldenSteps(t, s.Name, l, w, s.Steps)
				require.Equal(t, s.State.Hosts, l.hosts.keys(), "%s: hosts", s.Name)
				require.Equal(t, s.State.IPs, l.ips.keys(), "%s: addresses", s.Name)
				require.Equal(t, s.State.Subnets, l.subnets.keys(), "%s: subnets", s.Name)
				require.Equal(t, s.State.Violations, l.inViolation(), "%s: violations", s.Name)
				runGoldenSteps(t, s.Name+", checks", l, w, s.Checks)
			}
		})
	}
	if dir, whole := goldenDir(); whole {
		require.Positive(t, ran, "no scenario in %s", dir)
	}
}
