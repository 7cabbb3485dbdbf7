package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// ran is what one command line did.
type ran struct {
	code           int
	stdout, stderr string
}

func call(t *testing.T, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), "test", args, &stdout, &stderr)
	return ran{code, stdout.String(), stderr.String()}
}

func file(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

func TestRulesCheck(t *testing.T) {
	t.Parallel()
	good := file(t, `[[{"target":"path","matchType":"regex","value":"^/a(?=b)"}]]`)
	got := call(t, "rules", "check", good)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "valid")
	require.Contains(t, got.stdout, "backtracking")

	got = call(t, "rules", "check", file(t, `[]`))
	require.Equal(t, exitOK, got.code)
	require.Contains(t, got.stdout, "matches nothing")

	bad := file(t, `[[{"target":"path","value":"x"},{"target":"cookie"}]]`)
	got = call(t, "rules", "check", good, bad)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, bad)
	require.Contains(t, got.stderr, "condition 1")
	require.Contains(t, got.stderr, "condition 2")
}

func TestRulesTest(t *testing.T) {
	t.Parallel()
	rules := file(t, `[[{"target":"path","matchType":"endsWith","value":".pdf"},{"target":"cookie","name":"session","negate":true}]]`)
	for _, test := range []struct {
		args []string
		code int
	}{
		{[]string{"/a.pdf"}, exitOK},
		{[]string{"https://site.example/a.pdf?x=1"}, exitOK},
		{[]string{"/a.html"}, exitFailed},
		{[]string{"/a.pdf", "-H", "Cookie: session=1"}, exitFailed},
		{[]string{"/a.pdf", "-H", "no colon"}, exitFailed},
		{[]string{"%"}, exitFailed},
	} {
		got := call(t, append([]string{"rules", "test", rules}, test.args...)...)
		require.Equal(t, test.code, got.code, "%v: %+v", test.args, got)
	}
}

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	got := call(t, "rnu")
	require.NotEqual(t, exitOK, got.code)
	require.Contains(t, got.stderr, "rnu")
}

func TestRunReportsABadEnvironment(t *testing.T) {
	t.Setenv("CCNQ_DATA_DIR", t.TempDir())
	t.Setenv("CCNQ_PORT", "x")
	t.Setenv("CCNQ_QUUE", "1")
	got := call(t, "run")
	require.Equal(t, exitConfig, got.code)
	require.Contains(t, got.stderr, "CCNQ_PORT")
	require.Contains(t, got.stderr, "CCNQ_QUUE")
}
