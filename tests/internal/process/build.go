package process

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// packages are the commands that tests run; each binary has the last part of
// the name that is no version.
var packages = []string{
	"github.com/ccnq/ccnq/services/denylist/cmd/ccnq-denylist",
	"github.com/ccnq/ccnq/services/edge/cmd/ccnq-edge",
	"github.com/ccnq/ccnq/services/queue-coordinator/cmd/ccnq-queue-coordinator",
	"github.com/nats-io/nats-server/v2",
}

var dir string // of the binaries

// build makes the binaries, once for the process.
var build = sync.OnceValue(func() error {
	var err error
	if dir, err = os.MkdirTemp("", "ccnq-faults-"); err != nil {
		return err
	}
	cmd := exec.Command("go", append([]string{"build", "-o", dir + string(filepath.Separator)}, packages...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the commands: %w: %s", err, out)
	}
	return nil
})

// Path returns the path of a binary.
func Path(t testing.TB, binary string) string {
	t.Helper()
	require.NoError(t, build())
	return filepath.Join(dir, binary)
}

// parallel is how many tests run at once where nobody says otherwise: they
// mostly wait.
const parallel = "4"

// Main runs the tests, looks for goroutines that they left behind, and removes
// the binaries.
func Main(m *testing.M) {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err) // no such flag: this is no test binary
		}
	}
	if err := build(); err != nil { // now, so that no test's time counts it
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}
