package ccnq

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines that are left behind, other than those that the
// NATS server of a process leaves when it is stopped while it makes a stream.
func TestMain(m *testing.M) {
	const server = "github.com/nats-io/nats-server/v2/server"
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(server+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction(server+"/ats.Register.func1"))
}
