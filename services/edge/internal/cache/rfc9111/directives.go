package rfc9111

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// maxDelta is the greatest number of seconds that counts; larger ones are taken as this (RFC 9111 section 1.2.2).
const maxDelta = 1 << 31

// forever is longer than any response can have been stored.
const forever = time.Duration(math.MaxInt64)

// Directives are those of a request's Cache-Control (RFC 9111 section 5.2.1). The zero value has none. Pragma, which
// section 5.4 deprecates, is not looked at: net/http turns "Pragma: no-cache" without Cache-Control into no-cache.
type Directives struct {
	// NoStore asks that neither the request nor its answer is stored.
	NoStore bool
	// OnlyIfCached asks for a stored response or 504.
	OnlyIfCached bool

	noCache     bool
	hasMaxAge   bool
	hasMaxStale bool
	maxAge      time.Duration
	maxStale    time.Duration
	minFresh    time.Duration
}

// RequestDirectives reads Cache-Control of a request. A directive whose value is no number of seconds is ignored, as
// all of them are advice; of two values the stricter one counts. It does not allocate.
func RequestDirectives(h http.Header) Directives {
	var d Directives
	lines := h["Cache-Control"]
	if len(lines) == 0 {
		return d
	}
	for name, value := range directives(lines) {
		switch {
		case strings.EqualFold(name, "no-cache"):
			d.noCache = true
		case strings.EqualFold(name, "no-store"):
			d.NoStore = true
		case strings.EqualFold(name, "only-if-cached"):
			d.OnlyIfCached = true
		case strings.EqualFold(name, "max-age"):
			if s, ok := value.seconds(); ok && (!d.hasMaxAge || s < d.maxAge) {
				d.hasMaxAge, d.maxAge = true, s
			}
		case strings.EqualFold(name, "min-fresh"):
			if s, ok := value.seconds(); ok {
				d.minFresh = max(d.minFresh, s)
			}
		case strings.EqualFold(name, "max-stale"):
			s, ok := value.seconds()
			if !value.present {
				s, ok = forever, true
			}
			if ok && (!d.hasMaxStale || s < d.maxStale) {
				d.hasMaxStale, d.maxStale = true, s
			}
		}
	}
	return d
}

// argument is what follows the equals sign of a directive.
type argument struct {
	text    string // without the quotes, escapes left as they are
	present bool
	broken  bool // not a token and not a quoted string, or with space around the equals sign
}

// seconds returns the argument as a time, or false if it is no whole number of seconds. Both the token and the quoted
// form are read (RFC 9111 section 5.2).
func (a argument) seconds() (time.Duration, bool) {
	if !a.present || a.broken {
		return 0, false
	}
	n, ok := deltaSeconds(a.text)
	return time.Duration(n) * time.Second, ok
}

// deltaSeconds reads a number of seconds (RFC 9111 section 1.2.2), at most [maxDelta].
func deltaSeconds(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int64(c-'0'), maxDelta)
	}
	return n, true
}

// directives iterates over the lines of a Cache-Control field, in order, all lines being one list (RFC 9110 section
// 5.3). Commas inside quoted strings do not separate. A quoted string that does not end reaches to the end of its line,
// and is broken.
func directives(lines []string) func(yield func(string, argument) bool) {
	return func(yield func(string, argument) bool) {
		for _, line := range lines {
			for line != "" {
				var item string
				item, line = cutElement(line)
				name, arg := splitDirective(item)
				if name != "" && !yield(name, arg) {
					return
				}
			}
		}
	}
}

// cutElement splits the first element off a comma-separated list. Commas in quoted strings belong to the element.
func cutElement(list string) (element, rest string) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}

// splitDirective splits an element into name and argument.
func splitDirective(item string) (string, argument) {
	item = trimSpace(item)
	name, value, ok := strings.Cut(item, "=")
	if !ok {
		return item, argument{}
	}
	arg := argument{text: value, present: true}
	if trimmed := trimSpace(name); trimmed != name {
		name, arg.broken = trimmed, true
	}
	switch {
	case len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' && wellQuoted(value):
		arg.text = value[1 : len(value)-1]
	case !isToken(value):
		arg.broken = true
	}
	return name, arg
}

// wellQuoted reports whether a text that begins and ends with a quote has no other quote in between that ends it.
func wellQuoted(s string) bool {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i == len(s)-1
		}
	}
	return false
}

// trimSpace removes the space that RFC 9110 section 5.6.3 allows around elements.
func trimSpace(s string) string {
	for s != "" && isSpace(s[0]) {
		s = s[1:]
	}
	for s != "" && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// isToken reports whether s is a token (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
