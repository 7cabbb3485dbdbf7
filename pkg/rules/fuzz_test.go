package rules

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzParse: whatever a file holds, the answer is a usable set or messages
// that name the file.
func FuzzParse(f *testing.F) {
	examples, err := filepath.Glob(filepath.Join("..", "..", "deploy", "examples", "*-rules*.json"))
	require.NoError(f, err)
	require.NotEmpty(f, examples)
	for _, name := range examples {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data)
	}
	for _, text := range badRules {
		f.Add([]byte(text.rules))
	}
	f.Add([]byte(slowRules))
	f.Add([]byte(`[[{"target":"path","matchType":"regex","value":"(?<!x)(a|\\1)*\\u{41}[^]"}]]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Parse("rules.json", data)
		if err != nil {
			require.Nil(t, set)
			for line := range strings.Lines(err.Error()) {
				require.True(t, strings.HasPrefix(line, "rules.json: "), "%q", line)
			}
			return
		}
		r := &http.Request{
			URL:    &url.URL{Path: "/a.pdf", RawQuery: "preview=1&a=%zz"},
			Host:   "site.example",
			Header: http.Header{"Cookie": {"a=b; session"}, "User-Agent": {"x\xff"}},
		}
		matched := set.Match(r, OnTimeoutMatch)
		require.False(t, matched && set.Empty())
	})
}

// FuzzMatch compares Match with the oracle on rulesets of two conditions.
func FuzzMatch(f *testing.F) {
	add := func(path, query, header, cookie, kind, name, value, name2, value2 string, shape byte) {
		f.Add(path, query, header, cookie, kind, name, value, name2, value2, shape)
	}
	add("/a.pdf", "a=1&b=2", "v", "session=1; b", "path regex, cookie", "", `\.(pdf|zip)$`, "session", "", 0)
	add("//x/../y", "a+b=%41&a=%zz&&=;", "", " x = y ;=z", "query includes, query", "a b", "A", "a", "", 1)
	add("", "a", "x\xff", "a==b", "header endsWith, path startsWith", "x-a", "x", "", "/", 2)
	add("/\xff", "%61=1", "", "a=1;a=2", "query, cookie regex", "a", "", "a", "^2$", 3)
	add("/h", "", "", "", "header regex, header", "HOST", "example$", "x-b", "", 9)
	add("/", "a+b=1", "", "", "query, query", "a+b", "", "a b", "", 6)

	f.Fuzz(func(t *testing.T, path, query, header, cookie, kind, name, value, name2, value2 string, shape byte) {
		first, second, _ := strings.Cut(kind, ", ")
		a, b := makeRule(first, name, value, shape&1 != 0), makeRule(second, name2, value2, shape&2 != 0)
		groups := [][]rule{{a, b}}
		if shape&4 != 0 {
			groups = [][]rule{{a}, {}, {b}}
		}
		text, err := json.Marshal(groups)
		require.NoError(t, err)
		set, err := Parse("rules.json", text)
		if err != nil || len(set.Backtracking()) > 0 {
			return
		}
		r := &http.Request{
			URL:    &url.URL{Path: path, RawQuery: query},
			Host:   "site.example",
			Header: http.Header{},
		}
		if shape&8 != 0 {
			r.Header["X-A"] = []string{"first", header}
		}
		if shape&16 != 0 {
			r.Header["Cookie"] = []string{cookie, header}
		} else {
			r.Header["Cookie"] = []string{cookie}
		}
		want := oracle(groups, r)
		require.Equal(t, want, set.Match(r, OnTimeoutMatch), "%s on %#v", text, r)
		require.Equal(t, want, set.Match(r, OnTimeoutMiss))
	})
}

// makeRule makes a condition of "target matchType"; without matchType it asks
// for presence. Texts that JSON would change are replaced.
func makeRule(kind, name, value string, negate bool) rule {
	target, matchType, _ := strings.Cut(kind, " ")
	c := rule{Target: target, Negate: negate}
	if target != "path" {
		c.Name = valid(name)
	}
	if matchType != "" {
		c.MatchType, c.Value = &matchType, valid(value)
	}
	return c
}

func valid(s string) *string {
	if !utf8.ValidString(s) {
		s = "a"
	}
	return &s
}

// FuzzPattern: any text either compiles or is refused, without a panic; what is
// compared as words agrees with the expression, also on invalid UTF-8.
func FuzzPattern(f *testing.F) {
	for _, expr := range []string{
		`\.(css|jpe?g)$`, `^/[ab]c?|x`, `(?i)bot`, `(?<!a)b`, `(a*)*\1b`, `\u{41}[^][]`, `(?<n>a)\k<n>`, `[\d-x]{2,}`, `\p{L}+?`, `(?=(a+)+$)`,
	} {
		f.Add(expr, "/a.jpeg")
		f.Add(expr, "aaaa\xffaaaa!")
	}
	f.Fuzz(func(t *testing.T, expr, value string) {
		p, slow, err := compilePattern(expr)
		switch {
		case err != nil:
			require.Nil(t, p)
			require.Nil(t, slow)
		case slow != nil:
			slow.match(value, &budget{})
		default:
			require.Equal(t, regexp.MustCompile(expr).MatchString(value), p.match(value))
		}
	})
}
