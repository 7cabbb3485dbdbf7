package rules

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestF05_AllConditionsOfAGroupMustHold(t *testing.T) {
	t.Parallel()
	conditions := []string{
		`{"target":"path","matchType":"endsWith","value":".pdf"}`,
		`{"target":"header","name":"Authorization","negate":true}`,
		`{"target":"cookie","name":"session","negate":true}`,
	}
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		set := mustParse(t, "[[],["+conditions[order[0]]+","+conditions[order[1]]+","+conditions[order[2]]+"]]")
		match := func(r *http.Request) bool { return set.Match(r, OnTimeoutMatch) }
		require.True(t, match(request(t, "/a.pdf")), "neither")
		require.False(t, match(request(t, "/a.pdf", "Cookie: session=x")), "cookie")
		require.False(t, match(request(t, "/a.pdf", "Authorization:")), "empty header line is there")
		require.False(t, match(request(t, "/a.html")), "page")
	}
	require.False(t, mustParse(t, "[[]]").Match(request(t, "/a.pdf"), OnTimeoutMatch), "no condition at all")
}

func TestF06_StrangeButLegalHeaderValues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 16<<10)
	for _, tt := range []struct {
		name      string
		condition string
		target    string
		lines     []string
		want      bool
	}{
		{"und", `{"target":"header","name":"accept-language","matchType":"regex","value":"^und$"}`, "/", []string{"Accept-Language: und"}, true},
		{"cookie b", `{"target":"cookie","name":"b","matchType":"regex","value":"^=c$"}`, "/", []string{"Cookie: ;;=;a;b==c; =x"}, true},
		{"cookie a has no =", `{"target":"cookie","name":"a"}`, "/", []string{"Cookie: ;;=;a;b==c; =x"}, false},
		{"long agent", `{"target":"header","name":"user-agent","matchType":"endsWith","value":"xbot"}`, "/", []string{"User-Agent: " + long + "bot"}, true},
		{"long agent, regex", `{"target":"header","name":"user-agent","matchType":"regex","value":"[a-z]+bot$"}`, "/", []string{"User-Agent: " + long + "bot"}, true},
		{"Latin-1", `{"target":"header","name":"user-agent","matchType":"regex","value":"^M.ller$"}`, "/", []string{"User-Agent: M\xfcller"}, true},
		{"Latin-1, other part", `{"target":"header","name":"user-agent","matchType":"endsWith","value":"ller"}`, "/", []string{"User-Agent: M\xfcller"}, true},
		{"three agents", `{"target":"header","name":"user-agent","matchType":"includes","value":"three"}`, "/", []string{"User-Agent: one", "User-Agent: two", "User-Agent: three"}, true},
		{"no agent", `{"target":"header","name":"user-agent","negate":true}`, "/", nil, true},
		{"query a", `{"target":"query","name":"a"}`, "/?a=%zz&b=1;c=2&&=", nil, false},
		{"query b", `{"target":"query","name":"b","matchType":"regex","value":"^1;c=2$"}`, "/?a=%zz&b=1;c=2&&=", nil, true},
		{"query c", `{"target":"query","name":"c"}`, "/?a=%zz&b=1;c=2&&=", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := request(t, tt.target, tt.lines...)
			before := r.RequestURI
			require.Equal(t, tt.want, mustParse(t, "[["+tt.condition+"]]").Match(r, OnTimeoutMatch))
			require.Equal(t, before, r.RequestURI, "the request is not changed")
		})
	}
}

func TestF07_EncodedPaths(t *testing.T) {
	t.Parallel()
	set := mustParse(t, `[[
		{"target":"path","matchType":"startsWith","value":"/download/"},
		{"target":"path","matchType":"endsWith","value":"/file"}
	]]`)
	for target, want := range map[string]bool{
		"/download/a%3Fb/file":               true, // an encoded ? does not end the path
		"/download/a%2Fb/file":               true,
		"/%64ownload/x/file":                 true, // decoded once
		"/%2564ownload/x/file":               false,
		"//download/x/file":                  false, // not normalised
		"/download/../download/x/file":       true,  // not normalised, but begins and ends so
		"/download/x/file?y=/other":          true,  // the query takes no part
		"/download/x/other?y=/file":          false,
		"/other?/download/x/file":            false,
		"http://site.example/download//file": true,
	} {
		require.Equal(t, want, set.Match(request(t, target), OnTimeoutMatch), target)
	}
}
