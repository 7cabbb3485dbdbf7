package rules

import "net/http"

// target is the part of a request that a condition looks at.
type target uint8

const (
	targetPath target = iota + 1
	targetHeader
	targetCookie
	targetQuery
)

var targets = map[string]target{
	"path":   targetPath,
	"header": targetHeader,
	"cookie": targetCookie,
	"query":  targetQuery,
}

// verdict is the answer of a pattern about a value.
type verdict uint8

const (
	no verdict = iota
	yes
	unknown // a limit ended the search
)

// condition is one parsed condition. At most one of pattern and slow is set;
// with neither, presence is asked.
type condition struct {
	target  target
	name    string // canonical for a header
	negate  bool
	pattern pattern
	slow    *backtracker
}

func (c *condition) holds(r *http.Request, p Purpose, b *budget) bool {
	var v verdict
	switch c.target {
	case targetPath:
		v = c.test(requestPath(r), b)
	case targetHeader:
		v = c.testHeader(r, b)
	case targetCookie:
		v = c.testCookies(r, b)
	case targetQuery:
		v = c.testQuery(r.URL.RawQuery, b)
	}
	if v == unknown {
		return p == OnTimeoutMatch
	}
	return (v == yes) != c.negate
}

// test gives the verdict on one value.
func (c *condition) test(value string, b *budget) verdict {
	switch {
	case c.slow != nil:
		return c.slow.match(value, b)
	case c.pattern == nil || c.pattern.match(value):
		return yes
	default:
		return no
	}
}

func (c *condition) testHeader(r *http.Request, b *budget) verdict {
	switch c.name {
	case "Host": // net/http moves these two out of the header
		if r.Host == "" {
			return no
		}
		return c.test(r.Host, b)
	case "Transfer-Encoding":
		return c.testAny(r.TransferEncoding, b)
	default:
		return c.testAny(r.Header[c.name], b)
	}
}

// testAny is yes or unknown as soon as one value is.
func (c *condition) testAny(values []string, b *budget) verdict {
	for _, value := range values {
		if v := c.test(value, b); v != no {
			return v
		}
	}
	return no
}

func (c *condition) testCookies(r *http.Request, b *budget) verdict {
	for _, line := range r.Header["Cookie"] {
		for line != "" {
			var name, value string
			name, value, line = nextCookie(line)
			if name != c.name {
				continue
			}
			if v := c.test(value, b); v != no {
				return v
			}
		}
	}
	return no
}

func (c *condition) testQuery(query string, b *budget) verdict {
	for query != "" {
		var pair string
		pair, query = nextPair(query)
		value, ok := valueOf(pair, c.name)
		if !ok {
			continue
		}
		if v := c.test(value, b); v != no {
			return v
		}
	}
	return no
}

// cost orders conditions: what is cheaper to test comes first. It cannot
// change what a group decides.
func (c *condition) cost() int {
	switch {
	case c.slow != nil:
		return 3
	case isRegexp(c.pattern):
		return 2
	case c.target == targetCookie || c.target == targetQuery:
		return 1
	default:
		return 0
	}
}
