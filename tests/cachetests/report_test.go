package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseResults(t *testing.T) {
	t.Parallel()
	results, err := parseResults([]byte("WARN: something {\n[object]\n"))
	require.ErrorContains(t, err, "the results")
	require.Nil(t, results)
	results, err = parseResults([]byte("ERROR: noise\n{\n  \"a\": true,\n  \"b\": [\"Setup\", \"retry\"]\n}\n"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "", "b": "Setup: retry"}, results)
	for _, bad := range []string{"", "{}", "{\n", "{\n\"a\": false}", "{\n\"a\": []}", "{\n\"a\": [1]}"} {
		_, err = parseResults([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	tests := []test{
		{ID: "a", Kind: required}, {ID: "b", Kind: required}, {ID: "c", Kind: optimal}, {ID: "d", Kind: check}, {ID: "e", Kind: required},
	}
	sum := summarize(tests, map[string]string{"a": "", "b": "Assertion: no", "c": "", "d": "Setup: x", "unknown": ""})
	var out bytes.Buffer
	require.NoError(t, sum.print(&out, "1.2.3"))
	require.Equal(t, `check tests that are answered with no (neither is wrong):
  d: Setup: x

required tests that fail:
  b: Assertion: no
  e: did not run

http-cache-tests 1.2.3
  required   1/3
  optimal    1/1
  check      0/1
`, out.String())
	require.NoError(t, sum.check(bounds{required: 1, optimal: 1}))
	require.EqualError(t, sum.check(bounds{required: 2, optimal: 2}),
		"1 of the 3 required tests pass, at least 2 should\n1 of the 1 optimal tests pass, at least 2 should")
}

func TestServingAt(t *testing.T) {
	t.Parallel()
	require.Equal(t, "[::]:1234", servingAt(`{"time":"x","level":"INFO","msg":"serving","addr":"[::]:1234"}`))
	require.Empty(t, servingAt(`{"msg":"stopped","addr":"x"}`))
	require.Empty(t, servingAt(`panic: serving`))
}

func TestVersionOrFolder(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"0.4.5", "1.0.0-rc.1", "10.20.30"} {
		require.True(t, version.MatchString(v), v)
	}
	for _, f := range []string{"../suite", "/suite", "0.4", "latest", "--foo", "0.4.5/x", "0.4.5 x"} {
		require.False(t, version.MatchString(f), f)
	}
}
