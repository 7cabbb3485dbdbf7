package rules

import (
	"bufio"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// request reads a request as a server does: target, then header lines.
func request(t testing.TB, target string, lines ...string) *http.Request {
	t.Helper()
	raw := "GET " + target + " HTTP/1.1\r\n"
	if !strings.Contains(strings.Join(lines, "\n"), "Host:") {
		raw += "Host: site.example\r\n"
	}
	for _, line := range lines {
		raw += line + "\r\n"
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw + "\r\n")))
	require.NoError(t, err)
	return r
}

func mustParse(t testing.TB, text string) *Set {
	t.Helper()
	set, err := Parse("rules.json", []byte(text))
	require.NoError(t, err)
	return set
}

func TestMatchCondition(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		condition string
		target    string
		lines     []string
		want      bool
	}{
		{"path regex", `{"target":"path","matchType":"regex","value":"^/a.c$"}`, "/abc", nil, true},
		{"path regex is not anchored", `{"target":"path","matchType":"regex","value":"b"}`, "/abc", nil, true},
		{"path regex misses", `{"target":"path","matchType":"regex","value":"^b"}`, "/abc", nil, false},
		{"path includes", `{"target":"path","matchType":"includes","value":"b"}`, "/abc", nil, true},
		{"path startsWith", `{"target":"path","matchType":"startsWith","value":"/a"}`, "/abc", nil, true},
		{"path startsWith misses", `{"target":"path","matchType":"startsWith","value":"a"}`, "/abc", nil, false},
		{"path endsWith", `{"target":"path","matchType":"endsWith","value":"c"}`, "/abc", nil, true},
		{"path with case", `{"target":"path","matchType":"includes","value":"B"}`, "/abc", nil, false},
		{"path negated", `{"target":"path","matchType":"includes","value":"b","negate":true}`, "/abc", nil, false},
		{"path of an absolute target", `{"target":"path","matchType":"regex","value":"^/$"}`, "http://site.example", nil, true},
		{"path of the asterisk form", `{"target":"path","matchType":"regex","value":"^[*]$"}`, "*", nil, true},

		{"header there", `{"target":"header","name":"x-a"}`, "/", []string{"X-A: 1"}, true},
		{"header absent", `{"target":"header","name":"x-a"}`, "/", nil, false},
		{"header absent, negated", `{"target":"header","name":"x-a","negate":true}`, "/", nil, true},
		{"header empty is there", `{"target":"header","name":"x-a"}`, "/", []string{"X-A:"}, true},
		{"header name without case", `{"target":"header","name":"X-a","matchType":"includes","value":"1"}`, "/", []string{"x-A: 213"}, true},
		{"header value absent, negated", `{"target":"header","name":"x-a","matchType":"includes","value":"1","negate":true}`, "/", nil, true},
		{"header second line", `{"target":"header","name":"x-a","matchType":"startsWith","value":"2"}`, "/", []string{"X-A: 1", "X-A: 2"}, true},
		{"header second line, negated", `{"target":"header","name":"x-a","matchType":"startsWith","value":"2","negate":true}`, "/", []string{"X-A: 1", "X-A: 2"}, false},
		{"header line is no list", `{"target":"header","name":"x-a","matchType":"startsWith","value":"2"}`, "/", []string{"X-A: 1, 2"}, false},
		{"host", `{"target":"header","name":"host","matchType":"endsWith","value":".example"}`, "/", nil, true},
		{"host there", `{"target":"header","name":"Host"}`, "/", nil, true},
		{"host empty is absent", `{"target":"header","name":"Host"}`, "/", []string{"Host:"}, false},
		{"host of an absolute target", `{"target":"header","name":"host","matchType":"regex","value":"^other"}`, "http://other.example/", nil, true},
		{"transfer-encoding", `{"target":"header","name":"transfer-encoding","matchType":"includes","value":"chunked"}`, "/", []string{"Transfer-Encoding: chunked"}, true},
		{"cookie as a header", `{"target":"header","name":"cookie","matchType":"includes","value":"b=2"}`, "/", []string{"Cookie: a=1; b=2"}, true},

		{"cookie there", `{"target":"cookie","name":"b"}`, "/", []string{"Cookie: a=1; b=2"}, true},
		{"cookie absent", `{"target":"cookie","name":"c"}`, "/", []string{"Cookie: a=1; b=2"}, false},
		{"cookie absent, negated", `{"target":"cookie","name":"c","negate":true}`, "/", nil, true},
		{"cookie name with case", `{"target":"cookie","name":"B"}`, "/", []string{"Cookie: a=1; b=2"}, false},
		{"cookie empty value is there", `{"target":"cookie","name":"b"}`, "/", []string{"Cookie: a=1;b="}, true},
		{"cookie twice", `{"target":"cookie","name":"a","matchType":"includes","value":"2"}`, "/", []string{"Cookie: a=1; a=2"}, true},
		{"cookie on the second line", `{"target":"cookie","name":"a","matchType":"includes","value":"2"}`, "/", []string{"Cookie: a=1", "Cookie: a=2"}, true},
		{"cookie blanks", `{"target":"cookie","name":"a","matchType":"regex","value":"^1$"}`, "/", []string{"Cookie: x=y;\t a\t=  1 ;"}, true},
		{"cookie quotes stay", `{"target":"cookie","name":"a","matchType":"startsWith","value":"\""}`, "/", []string{`Cookie: a="1"`}, true},
		{"cookie escapes stay", `{"target":"cookie","name":"a","matchType":"regex","value":"^%31$"}`, "/", []string{`Cookie: a=%31`}, true},
		{"cookie name is whole", `{"target":"cookie","name":"a"}`, "/", []string{"Cookie: aa=1; ba=2"}, false},

		{"query there", `{"target":"query","name":"b"}`, "/?a=1&b=2", nil, true},
		{"query absent", `{"target":"query","name":"c"}`, "/?a=1&b=2", nil, false},
		{"query absent, negated", `{"target":"query","name":"c","negate":true}`, "/", nil, true},
		{"query without =", `{"target":"query","name":"b"}`, "/?a&b", nil, true},
		{"query name with case", `{"target":"query","name":"B"}`, "/?b=1", nil, false},
		{"query value", `{"target":"query","name":"preview","matchType":"includes","value":"1"}`, "/?preview=21", nil, true},
		{"query twice", `{"target":"query","name":"a","matchType":"includes","value":"2"}`, "/?a=1&a=2", nil, true},
		{"query value decoded", `{"target":"query","name":"a","matchType":"regex","value":"^x y&=$"}`, "/?a=x+y%26=", nil, true},
		{"query name decoded", `{"target":"query","name":"a b"}`, "/?%61+b=1", nil, true},
		{"query name that looks encoded", `{"target":"query","name":"a+b"}`, "/?a+b=1", nil, false},
		{"query name with a plus", `{"target":"query","name":"a+b"}`, "/?a%2bb=1", nil, true},
		{"query semicolon", `{"target":"query","name":"c"}`, "/?b=1;c=2", nil, false},
		{"query undecodable value", `{"target":"query","name":"a"}`, "/?a=%zz", nil, false},
		{"query undecodable beside a good one", `{"target":"query","name":"a","matchType":"includes","value":"1"}`, "/?a=%zz&a=1", nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := mustParse(t, "[["+tt.condition+"]]")
			r := request(t, tt.target, tt.lines...)
			require.Equal(t, tt.want, set.Match(r, OnTimeoutMatch))
			require.Equal(t, tt.want, set.Match(r, OnTimeoutMiss))
			require.Zero(t, set.Timeouts())
		})
	}
}

func TestMatchGroups(t *testing.T) {
	t.Parallel()
	const a, b = `{"target":"query","name":"a"}`, `{"target":"query","name":"b"}`
	for _, tt := range []struct {
		rules       string
		neither     bool
		onlyA, both bool
	}{
		{"[]", false, false, false},
		{"[[]]", false, false, false},
		{"[[],[]]", false, false, false},
		{"[[" + a + "]]", false, true, true},
		{"[[" + a + "," + b + "]]", false, false, true},
		{"[[" + a + "],[" + b + "]]", false, true, true},
		{"[[],[" + b + "]]", false, false, true},
	} {
		set := mustParse(t, tt.rules)
		require.Equal(t, tt.neither, set.Match(request(t, "/"), OnTimeoutMatch), tt.rules)
		require.Equal(t, tt.onlyA, set.Match(request(t, "/?a"), OnTimeoutMatch), tt.rules)
		require.Equal(t, tt.both, set.Match(request(t, "/?a&b"), OnTimeoutMatch), tt.rules)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	require.True(t, mustParse(t, "[]").Empty())
	require.True(t, mustParse(t, "[[],[]]").Empty())
	require.False(t, mustParse(t, `[[],[{"target":"query","name":"a"}]]`).Empty())
}

// examples are the rulesets that the documentation shows.
func examples(t testing.TB) map[string]*Set {
	t.Helper()
	sets := map[string]*Set{}
	for _, name := range []string{"queue-rules", "cache-rules", "queue-rules-query"} {
		set, err := Load(filepath.Join("..", "..", "deploy", "examples", name+".example.json"))
		require.NoError(t, err)
		require.Empty(t, set.Backtracking())
		sets[name] = set
	}
	return sets
}

func TestExamples(t *testing.T) {
	t.Parallel()
	sets := examples(t)
	for _, tt := range []struct {
		set    string
		target string
		lines  []string
		want   bool
	}{
		{"queue-rules", "/films/a.mp4", nil, true},
		{"queue-rules", "/films/a.mp4?x=1", nil, true},
		{"queue-rules", "/films/a.mp4.html", nil, false},
		{"queue-rules", "/films/a.mp4", []string{"Authorization: Bearer x"}, false},
		{"queue-rules", "/films/a.mp4", []string{"Cookie: session=1"}, false},
		{"queue-rules", "/films/a.mp4", []string{"Cookie: other=1"}, true},
		{"cache-rules", "/static/x", nil, true},
		{"cache-rules", "/static/x", []string{"Cookie: no-cache=1"}, false},
		{"cache-rules", "/a/b.css", nil, true},
		{"cache-rules", "/a/b.jpeg", nil, true},
		{"cache-rules", "/a/b.css", []string{"Cookie: no-cache=1"}, false},
		{"cache-rules", "/a/b.html", nil, false},
		{"queue-rules-query", "/?preview=1", nil, true},
		{"queue-rules-query", "/?preview=0", nil, false},
		{"queue-rules-query", "/", nil, false},
	} {
		r := request(t, tt.target, tt.lines...)
		require.Equal(t, tt.want, sets[tt.set].Match(r, OnTimeoutMatch), "%s %s %v", tt.set, tt.target, tt.lines)
	}
}

// A match of an example ruleset must not allocate: it runs for every request.
func TestExamplesDoNotAllocate(t *testing.T) {
	sets := examples(t)
	for name, set := range sets {
		for target, lines := range benchRequests {
			r := request(t, target, lines...)
			require.Zero(t, testing.AllocsPerRun(100, func() { set.Match(r, OnTimeoutMatch) }), "%s %s", name, target)
		}
	}
}
