package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// badRules are refused with exactly these messages.
var badRules = []struct{ rules, want string }{
	{``, "rules.json: is empty; a ruleset that matches nothing is []"},
	{" \n", "rules.json: is empty; a ruleset that matches nothing is []"},
	{`null`, "rules.json: is null, must be an array"},
	{`{}`, "rules.json: is an object, must be an array"},
	{`7`, "rules.json: is a number, must be an array"},
	{"[\n [}\n]", "rules.json: line 2, column 3: invalid character '}' looking for beginning of value"},
	{"[\n [", "rules.json: line 2, column 2: unexpected end of JSON input"},
	{`[] []`, "rules.json: line 1, column 4: invalid character '[' after top-level value"},
	{"[\"\xff\"]", "rules.json: not valid UTF-8"},
	{`[null]`, "rules.json: group 1: is null, must be an array"},
	{`[[],{}]`, "rules.json: group 2: is an object, must be an array"},
	{`[[[]]]`, "rules.json: group 1, condition 1: is an array, must be an object"},
	{`[[{}]]`, "rules.json: group 1, condition 1, target: missing; it is path, header, cookie or query"},
	{`[[{"target":"url"}]]`, `rules.json: group 1, condition 1, target: "url" is not one of path, header, cookie, query`},
	{`[[{"target":"Path"}]]`, `rules.json: group 1, condition 1, target: "Path" is not one of path, header, cookie, query`},
	{`[[{"target":1}]]`, "rules.json: group 1, condition 1, target: is a number, must be a string"},
	{`[[{"target":null}]]`, "rules.json: group 1, condition 1, target: is null, must be a string"},
	{`[[{"target":"path"}]]`, "rules.json: group 1, condition 1, matchType: missing; a path is always there, so a condition on it needs one"},
	{`[[{"target":"path","name":"x","matchType":"includes","value":"a"}]]`, `rules.json: group 1, condition 1, name: a path has none, but "x" is given`},
	{`[[{"target":"path","matchType":"equals","value":"a"}]]`, `rules.json: group 1, condition 1, matchType: "equals" is not one of regex, includes, startsWith, endsWith`},
	{`[[{"target":"path","matchType":"includes"}]]`, "rules.json: group 1, condition 1, value: missing; it is required with a matchType"},
	{`[[{"target":"path","matchType":"includes","value":""}]]`, "rules.json: group 1, condition 1, value: is empty and would match anything; to ask for presence leave out matchType and value"},
	{`[[{"target":"path","matchType":"includes","value":["a"]}]]`, "rules.json: group 1, condition 1, value: is an array, must be a string"},
	{`[[{"target":"query","name":"a","value":"b"}]]`, `rules.json: group 1, condition 1, value: "b" is given without a matchType`},
	{`[[{"target":"header"}]]`, "rules.json: group 1, condition 1, name: missing; a condition on a header needs one"},
	{`[[{"target":"cookie","name":""}]]`, "rules.json: group 1, condition 1, name: is empty"},
	{`[[{"target":"header","name":"a b"}]]`, `rules.json: group 1, condition 1, name: "a b" is not the name of a header (RFC 9110 §5.1)`},
	{`[[{"target":"header","name":"trailer"}]]`, "rules.json: group 1, condition 1, name: the header Trailer cannot be matched"},
	{`[[{"target":"cookie","name":"a;b"}]]`, `rules.json: group 1, condition 1, name: "a;b" can never be the name of a cookie`},
	{`[[{"target":"cookie","name":" a"}]]`, `rules.json: group 1, condition 1, name: " a" can never be the name of a cookie`},
	{`[[{"target":"query","name":"a","negate":"true"}]]`, "rules.json: group 1, condition 1, negate: is a string, must be a boolean"},
	{`[[{"target":"query","name":"a","negate":null}]]`, "rules.json: group 1, condition 1, negate: is null, must be a boolean"},
	{`[[{"target":"query","name":"a","Negate":true}]]`, `rules.json: group 1, condition 1, field "Negate": unknown; known are target, name, matchType, value, negate`},
	{`[[{"target":"query","name":"a","name":"b"}]]`, "rules.json: group 1, condition 1, name: given twice"},
	{`[[{"target":"path","matchType":"regex","value":"a(b"}]]`, `rules.json: group 1, condition 1, value: pattern "a(b" is neither RE2 (missing closing ): "a(b") nor ECMAScript`},
	{`[[{"target":"path","matchType":"regex","value":"(?<=a"}]]`, `rules.json: group 1, condition 1, value: pattern "(?<=a" is neither RE2 (invalid named capture: "(?<=a") nor ECMAScript`},
	// All problems at once.
	{
		`[[{"target":"path","matchType":"equals"}],[{"target":"query","name":"a"},{"target":"cookie","value":"x"}]]`,
		"rules.json: group 1, condition 1, value: missing; it is required with a matchType\n" +
			`rules.json: group 1, condition 1, matchType: "equals" is not one of regex, includes, startsWith, endsWith` + "\n" +
			"rules.json: group 2, condition 2, name: missing; a condition on a cookie needs one\n" +
			`rules.json: group 2, condition 2, value: "x" is given without a matchType`,
	},
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range badRules {
		set, err := Parse("rules.json", []byte(tt.rules))
		require.EqualError(t, err, tt.want, tt.rules)
		require.Nil(t, set)
	}
}

func TestParseLimits(t *testing.T) {
	t.Parallel()
	const condition = `{"target":"query","name":"a"}`
	list := func(element string, n int) string {
		return "[" + strings.Repeat(element+",", n-1) + element + "]"
	}
	named := func(n int) string {
		return `[[{"target":"query","name":"` + strings.Repeat("n", n) + `"}]]`
	}
	valued := func(n int) string {
		return `[[{"target":"path","matchType":"includes","value":"` + strings.Repeat("v", n) + `"}]]`
	}
	for _, tt := range []struct{ good, bad, want string }{
		{"[" + strings.Repeat(" ", MaxFileSize-2) + "]", "[" + strings.Repeat(" ", MaxFileSize-1) + "]", "rules.json: larger than 1048576 bytes"},
		{list("["+condition+"]", MaxGroups), list("["+condition+"]", MaxGroups+1), "rules.json: 1001 groups, more than 1000"},
		{"[" + list(condition, MaxConditions) + "]", "[" + list(condition, MaxConditions+1) + "]", "rules.json: group 1: 101 conditions, more than 100"},
		{named(MaxName), named(MaxName + 1), "is longer than 256 bytes"},
		{valued(MaxValue), valued(MaxValue + 1), "is longer than 65536 bytes"},
	} {
		mustParse(t, tt.good)
		_, err := Parse("rules.json", []byte(tt.bad))
		require.ErrorContains(t, err, tt.want)
		require.Less(t, len(err.Error()), 300, "messages quote only the beginning")
	}

	_, err := Parse("rules.json", []byte(list("[{}]", 500)))
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, maxProblems+1)
	require.Equal(t, "rules.json: there are more problems than these 100", lines[maxProblems])
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "queue.json")

	_, err := Load(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, path)

	_, err = Load(dir)
	require.EqualError(t, err, dir+": not a regular file")

	require.NoError(t, os.WriteFile(path, []byte(`[[{"target":"path"}]]`), 0o600))
	_, err = Load(path)
	require.ErrorContains(t, err, fmt.Sprintf("%s: group 1, condition 1, matchType: missing", path))

	require.NoError(t, os.WriteFile(path, []byte(`[]`), 0o600))
	set, err := Load(path)
	require.NoError(t, err)
	require.True(t, set.Empty())
}
