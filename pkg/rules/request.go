package rules

import (
	"net/http"
	"net/url"
	"strings"
)

// requestPath returns the decoded path of the target; the empty path is "/".
func requestPath(r *http.Request) string {
	if r.URL.Path == "" {
		return "/"
	}
	return r.URL.Path
}

// nextCookie takes the first pair off a Cookie line. The name is empty if the
// pair cannot be read.
func nextCookie(line string) (name, value, rest string) {
	pair, rest, _ := strings.Cut(line, ";")
	name, value, ok := strings.Cut(pair, "=")
	if !ok {
		return "", "", rest
	}
	return trimBlanks(name), trimBlanks(value), rest
}

// trimBlanks removes blanks and tabs from both ends.
func trimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// nextPair takes the first pair off a query.
func nextPair(query string) (pair, rest string) {
	pair, rest, _ = strings.Cut(query, "&")
	return pair, rest
}

// valueOf returns the decoded value of a pair whose decoded name is name, and
// whether the pair has that name and can be decoded. It allocates only to
// decode.
func valueOf(pair, name string) (string, bool) {
	rawName, rawValue, _ := strings.Cut(pair, "=")
	if !nameIs(rawName, name) {
		return "", false
	}
	value, err := url.QueryUnescape(rawValue)
	return value, err == nil
}

// nameIs reports whether raw decodes to name. An escape is three bytes for
// one, so the length rules out most names without decoding.
func nameIs(raw, name string) bool {
	if raw == name {
		// Equal bytes, but "+" and "%" would mean something else decoded.
		return strings.IndexByte(raw, '%') < 0 && strings.IndexByte(raw, '+') < 0
	}
	if len(raw) < len(name) || len(raw) > 3*len(name) {
		return false
	}
	decoded, err := url.QueryUnescape(raw)
	return err == nil && decoded == name
}
