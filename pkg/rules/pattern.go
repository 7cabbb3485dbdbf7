package rules

import (
	"regexp"
	"strings"
)

// pattern is a test of a value that needs no limit.
type pattern interface {
	match(value string) bool
}

type (
	includes   string
	startsWith string
	endsWith   string
)

func (p includes) match(value string) bool   { return strings.Contains(value, string(p)) }
func (p startsWith) match(value string) bool { return strings.HasPrefix(value, string(p)) }
func (p endsWith) match(value string) bool   { return strings.HasSuffix(value, string(p)) }

// linear is an RE2 pattern.
type linear struct{ re *regexp.Regexp }

func (p linear) match(value string) bool { return p.re.MatchString(value) }

func isRegexp(p pattern) bool {
	_, ok := p.(linear)
	return ok
}

// compilePattern compiles a regular expression: to plain string comparisons
// where it stands for a few strings, else to RE2, else to the backtracking
// engine. Exactly one of the results is set.
func compilePattern(expr string) (pattern, *backtracker, error) {
	re, err := regexp.Compile(expr)
	if err != nil {
		slow, err := compileBacktracker(expr, err)
		return nil, slow, err
	}
	if p, ok := compileWords(expr); ok {
		return p, nil, nil
	}
	return linear{re}, nil, nil
}
