package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// fields are the fields of one condition as written; nil is absent.
type fields struct {
	parser    *parser
	place     string
	target    *string
	name      *string
	matchType *string
	value     *string
	negate    *bool
}

func (f *fields) fail(field, format string, args ...any) {
	f.parser.fail(f.place+", "+field+": ", format, args...)
}

// condition reads and checks one condition. It is false if there was a
// problem.
func (f *fields) condition(raw json.RawMessage) (condition, bool) {
	before := len(f.parser.problems)
	if f.read(raw) {
		c := condition{negate: f.negate != nil && *f.negate}
		f.checkTarget(&c)
		f.checkName(&c)
		f.checkMatch(&c)
		return c, len(f.parser.problems) == before
	}
	return condition{}, false
}

// read splits the object into fields. It is false if a field could not be
// read, in which case the others cannot be judged.
func (f *fields) read(raw json.RawMessage) bool {
	if kind := kindOf(raw); kind != "an object" {
		f.parser.fail(f.place+": ", "is %s, must be an object", kind)
		return false
	}
	good := true
	seen := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, err := dec.Token() // the brace
	for err == nil && dec.More() {
		var token json.Token
		if token, err = dec.Token(); err != nil {
			break
		}
		key, _ := token.(string) // a key is always a string
		var value json.RawMessage
		if err = dec.Decode(&value); err != nil {
			break
		}
		switch {
		case seen[key]:
			f.fail(field(key), "given twice")
			good = false
		case !f.set(key, value):
			good = false
		}
		seen[key] = true
	}
	if err != nil {
		f.parser.fail(f.place+": ", "%s", err)
		return false
	}
	return good
}

// field is the name of a field for a message: as it is if it is one of ours.
func field(key string) string {
	switch key {
	case "target", "name", "matchType", "value", "negate":
		return key
	default:
		return "field " + clip(key)
	}
}

// set stores one field. It is false if the field is unknown or of another
// type.
func (f *fields) set(key string, raw json.RawMessage) bool {
	var err error
	switch key {
	case "target":
		f.target, err = decode[string](raw, "a string")
	case "name":
		f.name, err = decode[string](raw, "a string")
	case "matchType":
		f.matchType, err = decode[string](raw, "a string")
	case "value":
		f.value, err = decode[string](raw, "a string")
	case "negate":
		f.negate, err = decode[bool](raw, "a boolean")
	default:
		err = fmt.Errorf("unknown; known are target, name, matchType, value, negate")
	}
	if err != nil {
		f.fail(field(key), "%s", err)
	}
	return err == nil
}

func decode[T any](raw json.RawMessage, kind string) (*T, error) {
	if is := kindOf(raw); is != kind {
		return nil, fmt.Errorf("is %s, must be %s", is, kind)
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return &v, nil
}

func (f *fields) checkTarget(c *condition) {
	if f.target == nil {
		f.fail("target", "missing; it is path, header, cookie or query")
		return
	}
	var ok bool
	if c.target, ok = targets[*f.target]; !ok {
		f.fail("target", "%s is not one of path, header, cookie, query", clip(*f.target))
	}
}

func (f *fields) checkName(c *condition) {
	switch {
	case c.target == 0:
		return
	case c.target == targetPath:
		if f.name != nil {
			f.fail("name", "a path has none, but %s is given", clip(*f.name))
		}
		return
	case f.name == nil:
		f.fail("name", "missing; a condition on a %s needs one", *f.target)
		return
	case *f.name == "":
		f.fail("name", "is empty")
		return
	case len(*f.name) > MaxName:
		f.fail("name", "%s is longer than %d bytes", clip(*f.name), MaxName)
		return
	}
	c.name = *f.name
	switch c.target {
	case targetHeader:
		c.name = http.CanonicalHeaderKey(c.name)
		switch {
		case !isToken(c.name):
			f.fail("name", "%s is not the name of a header (RFC 9110 §5.1)", clip(*f.name))
		case c.name == "Trailer":
			f.fail("name", "the header %s cannot be matched", c.name)
		}
	case targetCookie:
		if strings.ContainsAny(c.name, "=;\x00\r\n") || trimBlanks(c.name) != c.name {
			f.fail("name", "%s can never be the name of a cookie", clip(c.name))
		}
	}
}

func (f *fields) checkMatch(c *condition) {
	switch {
	case f.matchType == nil && f.value != nil:
		f.fail("value", "%s is given without a matchType", clip(*f.value))
		return
	case f.matchType == nil:
		if c.target == targetPath {
			f.fail("matchType", "missing; a path is always there, so a condition on it needs one")
		}
		return
	case f.value == nil:
		f.fail("value", "missing; it is required with a matchType")
	case *f.value == "":
		f.fail("value", "is empty and would match anything; to ask for presence leave out matchType and value")
	case len(*f.value) > MaxValue:
		f.fail("value", "%s is longer than %d bytes", clip(*f.value), MaxValue)
	}
	var build func(string)
	switch *f.matchType {
	case "includes":
		build = func(v string) { c.pattern = includes(v) }
	case "startsWith":
		build = func(v string) { c.pattern = startsWith(v) }
	case "endsWith":
		build = func(v string) { c.pattern = endsWith(v) }
	case "regex":
		build = func(v string) { f.compile(c, v) }
	default:
		f.fail("matchType", "%s is not one of regex, includes, startsWith, endsWith", clip(*f.matchType))
		return
	}
	if f.value != nil && *f.value != "" && len(*f.value) <= MaxValue {
		build(*f.value)
	}
}

func (f *fields) compile(c *condition, expr string) {
	var err error
	if c.pattern, c.slow, err = compilePattern(expr); err != nil {
		f.fail("value", "%s", err)
		return
	}
	if c.slow != nil {
		f.parser.backtracking = append(f.parser.backtracking,
			fmt.Sprintf("%s: %s, value: pattern %s", f.parser.file, f.place, clip(expr)))
	}
}

// isToken reports whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
