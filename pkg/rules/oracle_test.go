package rules

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// rule is a condition as the oracle and the JSON encoder see it.
type rule struct {
	Target    string  `json:"target"`
	Name      *string `json:"name,omitempty"`
	MatchType *string `json:"matchType,omitempty"`
	Value     *string `json:"value,omitempty"`
	Negate    bool    `json:"negate,omitempty"`
}

// oracle answers what Match should, in the slowest and plainest way: it takes
// the request apart into all of its names and values, then counts.
func oracle(groups [][]rule, r *http.Request) bool {
	matching := 0
	for _, group := range groups {
		failing := 0
		for _, c := range group {
			if oracleHolds(c, r) == c.Negate {
				failing++
			}
		}
		if failing == 0 && len(group) > 0 {
			matching++
		}
	}
	return matching > 0
}

// oracleHolds leaves negation to the caller.
func oracleHolds(c rule, r *http.Request) bool {
	hits := 0
	for _, value := range oracleValues(c, r) {
		if c.MatchType == nil {
			hits++
			continue
		}
		pattern := regexp.QuoteMeta(*c.Value)
		switch *c.MatchType {
		case "regex":
			pattern = *c.Value
		case "startsWith":
			pattern = `\A` + pattern
		case "endsWith":
			pattern += `\z`
		}
		if regexp.MustCompile(pattern).MatchString(value) {
			hits++
		}
	}
	return hits > 0
}

func oracleValues(c rule, r *http.Request) []string {
	byName := map[string][]string{}
	switch c.Target {
	case "path":
		if r.URL.Path == "" {
			return []string{"/"}
		}
		return []string{r.URL.Path}
	case "header":
		for name, values := range r.Header {
			for _, v := range values {
				lower := strings.ToLower(name)
				byName[lower] = append(byName[lower], v)
			}
		}
		if r.Host != "" {
			byName["host"] = []string{r.Host}
		}
		return byName[strings.ToLower(*c.Name)]
	case "cookie":
		for _, pair := range strings.Split(strings.Join(r.Header["Cookie"], ";"), ";") {
			if i := strings.Index(pair, "="); i >= 0 {
				name, value := strings.Trim(pair[:i], " \t"), strings.Trim(pair[i+1:], " \t")
				byName[name] = append(byName[name], value)
			}
		}
	case "query":
		for _, pair := range strings.Split(r.URL.RawQuery, "&") {
			parts := append(strings.SplitN(pair, "=", 2), "")
			name, err1 := url.PathUnescape(strings.ReplaceAll(parts[0], "+", "%20"))
			value, err2 := url.PathUnescape(strings.ReplaceAll(parts[1], "+", "%20"))
			if err1 == nil && err2 == nil {
				byName[name] = append(byName[name], value)
			}
		}
	}
	return byName[*c.Name]
}
