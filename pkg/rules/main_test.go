package rules

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The clock of the backtracking engine ends by itself some time after its
	// last use.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}
