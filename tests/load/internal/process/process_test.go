//go:build linux

package process

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The test's own binary is the program that the tests run.
const playing = "CCNQ_LOAD_TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(playing) {
	case "":
		goleak.VerifyTestMain(m)
	case "server":
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		fmt.Println("127.0.0.1:80")
		<-end
	case "failure":
		fmt.Fprintln(os.Stderr, "no such host")
		os.Exit(1)
	}
}

func program(name string) []string { return append(os.Environ(), playing+"="+name) }

func TestStartAndRead(t *testing.T) {
	t.Parallel()
	p, line, err := StartAndRead("server", program("server"), os.Args[0])
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:80", line)
	used, err := p.CPU()
	require.NoError(t, err)
	require.Positive(t, used)
	resident, err := p.Memory()
	require.NoError(t, err)
	require.Greater(t, resident, int64(1<<20))
	asked := 0
	require.NoError(t, p.Await(t.Context(), "the third time", func() bool { asked++; return asked == 3 }))
	require.NoError(t, p.Freeze())
	require.NoError(t, p.Await(t.Context(), "it is frozen", func() bool { return state(t, p) == "T" }))
	require.NoError(t, p.Thaw())
	require.NoError(t, p.Await(t.Context(), "it runs", func() bool { return state(t, p) != "T" }))
	require.NoError(t, p.Stop())
	_, err = p.CPU()
	require.Error(t, err)
	require.ErrorContains(t, p.Stop(), "server ended by itself")
}

// state returns the letter of a program's state in /proc; T is stopped.
func state(t *testing.T, p *Process) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(stat), ") ")
	require.True(t, ok)
	return rest[:1]
}

func TestProgramThatFails(t *testing.T) {
	t.Parallel()
	_, _, err := StartAndRead("failure", program("failure"), os.Args[0])
	require.ErrorContains(t, err, "failure did not get ready")
	require.ErrorContains(t, err, "no such host")

	p, err := Start("failure", program("failure"), os.Args[0])
	require.NoError(t, err)
	require.ErrorContains(t, p.Await(t.Context(), "it works", func() bool { return false }), "no such host")

	_, err = Start("nothing", nil, "/nowhere/nothing")
	require.ErrorContains(t, err, "start nothing")
}
