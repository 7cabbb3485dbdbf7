package rfc9111

import (
	"net/http"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// control holds the directives of a response (RFC 9111 section 5.2.2, RFC 5861).
type control struct {
	mustRevalidate  bool
	mustUnderstand  bool
	noCache         bool // unqualified
	noStore         bool
	private         bool // unqualified
	proxyRevalidate bool
	public          bool
	maxAge          seconds
	sMaxAge         seconds
	whileRevalidate seconds
	ifError         seconds
	fields          []string // named by the qualified forms of no-cache and private
}

// seconds is the argument of a directive. Two different values, or one that is no number, make it bad.
type seconds struct {
	set, bad bool
	value    time.Duration
}

func (s *seconds) add(value time.Duration, ok bool) {
	if s.set && s.value != value || !ok {
		s.bad = true
	}
	s.set, s.value = true, value
}

// lifetime returns the value for a freshness lifetime: bad ones mean stale (section 4.2.1).
func (s *seconds) lifetime() time.Duration {
	if s.bad {
		return 0
	}
	return s.value
}

// responseControl reads Cache-Control, or CDN-Cache-Control instead of it if that is present and valid (RFC 9213
// section 2.2). targeted says that it was, in which case Expires does not count either.
func responseControl(h http.Header) (c control, targeted bool) {
	if lines := h["Cdn-Cache-Control"]; len(lines) > 0 {
		if c, ok := targetedControl(lines); ok {
			return c, true
		}
	}
	for name, arg := range directives(h["Cache-Control"]) {
		c.add(name, arg)
	}
	return c, false
}

// add takes one directive of Cache-Control. Directives that take no argument count even if they have one.
func (c *control) add(name string, arg argument) {
	if s := c.seconds(name); s != nil {
		value, ok := arg.seconds()
		s.add(value, ok)
		return
	}
	if flag := c.flag(name); flag != nil {
		*flag = true
		return
	}
	switch {
	case strings.EqualFold(name, "no-cache"):
		c.qualify(&c.noCache, arg)
	case strings.EqualFold(name, "private"):
		c.qualify(&c.private, arg)
	}
}

// qualify notes the fields that the qualified form of no-cache or private names. Without a proper list of names, it is
// the unqualified form.
func (c *control) qualify(unqualified *bool, arg argument) {
	before := len(c.fields)
	if arg.present && !arg.broken {
		for name := range strings.SplitSeq(arg.text, ",") {
			if name = trimSpace(name); name == "" {
				continue
			}
			if !isToken(name) {
				*unqualified = true
				return
			}
			c.fields = append(c.fields, http.CanonicalHeaderKey(name))
		}
	}
	if len(c.fields) == before {
		*unqualified = true
	}
}

func (c *control) flag(name string) *bool {
	switch {
	case strings.EqualFold(name, "must-revalidate"):
		return &c.mustRevalidate
	case strings.EqualFold(name, "must-understand"):
		return &c.mustUnderstand
	case strings.EqualFold(name, "no-store"):
		return &c.noStore
	case strings.EqualFold(name, "proxy-revalidate"):
		return &c.proxyRevalidate
	case strings.EqualFold(name, "public"):
		return &c.public
	}
	return nil
}

func (c *control) seconds(name string) *seconds {
	switch {
	case strings.EqualFold(name, "max-age"):
		return &c.maxAge
	case strings.EqualFold(name, "s-maxage"):
		return &c.sMaxAge
	case strings.EqualFold(name, "stale-if-error"):
		return &c.ifError
	case strings.EqualFold(name, "stale-while-revalidate"):
		return &c.whileRevalidate
	}
	return nil
}

// targetedControl reads CDN-Cache-Control, a structured field (RFC 9213 section 2.1). It reports false for one that is
// empty or not well-formed, and, to be safe, for one in which a directive that matters here has a value of the wrong
// type: such a field is ignored as a whole.
func targetedControl(lines []string) (c control, ok bool) {
	dict, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil || len(dict.Names()) == 0 {
		return c, false
	}
	for _, name := range dict.Names() {
		member, _ := dict.Get(name)
		item, isItem := member.(httpsfv.Item)
		if !isItem {
			if c.knows(name) {
				return control{}, false
			}
			continue
		}
		if !c.addTargeted(name, item.Value) {
			return control{}, false
		}
	}
	return c, true
}

func (c *control) knows(name string) bool {
	return c.seconds(name) != nil || c.flag(name) != nil || name == "no-cache" || name == "private"
}

// addTargeted takes one member of the dictionary, whose names are in lower case.
func (c *control) addTargeted(name string, value any) bool {
	if s := c.seconds(name); s != nil {
		n, ok := value.(int64)
		if !ok || n < 0 {
			return false
		}
		s.add(time.Duration(min(n, maxDelta))*time.Second, true)
		return true
	}
	if flag := c.flag(name); flag != nil {
		b, ok := value.(bool)
		*flag = b
		return ok
	}
	if name != "no-cache" && name != "private" {
		return true
	}
	unqualified := &c.noCache
	if name == "private" {
		unqualified = &c.private
	}
	switch v := value.(type) {
	case bool:
		*unqualified = v
	case string:
		c.qualify(unqualified, argument{text: v, present: true})
	default:
		return false
	}
	return true
}
