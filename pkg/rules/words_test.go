package rules

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWordsAgreeWithTheExpression(t *testing.T) {
	t.Parallel()
	subjects := []string{
		"", "a", "b", "ab", "ba", "abc", "cab", ".pdf", "x.pdf", "x.pdfx", "x.PDF", "/a/b.jpg", "b.jpeg", "b.jpg?",
		"a\n", "\na", "a\xff", "\xffa", "\xe2\x82", "\xe2\x82€", "€", "x€", "\ufffd", "é", "\xc3", "/static/x",
	}
	for expr, want := range map[string]int{ // how many words; 0 means left to RE2
		`\.(mp4|mov|pdf)$`:     3,
		`\.(css|jpe?g|woff2)$`: 4,
		`^a`:                   1,
		`^a$`:                  1,
		`^$`:                   1,
		`a|b|abc`:              3,
		`^(a|b)$`:              2,
		`[ab]c?`:               4,
		`€$`:                   1,
		`\x{e9}`:               1,
		`(?:)`:                 1,
		`\z`:                   1,
		`^/static/`:            1,
		`(?i)a`:                0,
		`a+`:                   0,
		`a*$`:                  0,
		`.`:                    0,
		`\x{fffd}`:             0,
		`[^a]`:                 0,
		`(?m)^a$`:              0,
		`^a|b$`:                0,
		`a$b`:                  0,
		`\ba`:                  0,
		`[a-z][a-z]`:           0, // too many
	} {
		p, _, err := compilePattern(expr)
		require.NoError(t, err)
		got := 0
		if w, ok := p.(*words); ok {
			got = len(w.words)
		}
		require.Equal(t, want, got, expr)
		re := regexp.MustCompile(expr)
		for _, s := range subjects {
			require.Equal(t, re.MatchString(s), p.match(s), "%s on %q", expr, s)
		}
	}
}
