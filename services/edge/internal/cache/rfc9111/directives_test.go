package rfc9111

import (
	"math"
	"math/big"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRequestDirectives(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]Directives{
		"":                             {},
		"nothing-to-see-here":          {},
		"no-store":                     {NoStore: true},
		"ONLY-IF-CACHED":               {OnlyIfCached: true},
		"no-cache, no-store=1":         {NoStore: true, noCache: true},
		`x="no-store, max-age=1"`:      {},
		`x="\", no-store"`:             {},
		`x="a, no-store`:               {},
		"max-stale":                    {hasMaxStale: true, maxStale: forever},
		"max-stale, max-stale=3":       {hasMaxStale: true, maxStale: 3 * time.Second},
		"max-stale=x":                  {},
		"max-age=1, max-age=0":         {hasMaxAge: true},
		"max-age=99999999999999999999": {hasMaxAge: true, maxAge: maxDelta * time.Second},
		"min-fresh=1, min-fresh=2":     {minFresh: 2 * time.Second},
		"max-age =1":                   {},
		`max-age="1`:                   {},
		`max-age="1"x`:                 {},
	} {
		require.Equal(t, want, RequestDirectives(fields("Cache-Control: "+field)), field)
	}
	require.Equal(t, Directives{noCache: true, NoStore: true}, RequestDirectives(fields("Cache-Control: no-cache", "Cache-Control: no-store")))
	require.Equal(t, Directives{}, RequestDirectives(fields("Pragma: no-cache")))
}

// FuzzCacheControl compares what a response's Cache-Control leads to with a reading by regular expressions.
func FuzzCacheControl(f *testing.F) {
	for _, seed := range []string{
		"max-age=60", `max-age="60"`, "max-age=60, max-age=5", "s-maxage=5, max-age=60", `private="a, b", max-age=60`, "no-cache",
		`x="max-age=1, no-store", max-age=60`, "max-age=-1", "max-age =1", `max-age="60`, "public\nno-store", ",,max-age=1,,", `a="\"", no-store`,
		"max-age=0, stale-while-revalidate=5", `no-cache="set cookie"`, "must-revalidate, max-age=0, stale-if-error=9",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(text, "\n")
		res, reason := (&Policy{}).Store(get(), http.StatusOK, http.Header{"Cache-Control": lines}, start, start)
		wantReason, lifetime := plainControl(lines)
		require.Equal(t, wantReason, reason)
		if reason == Stored {
			require.Equal(t, lifetime, res.FreshFor(start))
		}
	})
}

var (
	directivePattern = regexp.MustCompile(`(?s)^([^=]*?)([ \t]*)(?:=(.*))?$`)
	secondsPattern   = regexp.MustCompile(`^(?:([0-9]+)|"([0-9]+)")$`)
	tokenPattern     = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")
	stringPattern    = regexp.MustCompile(`(?s)^"((?:[^"\\]|\\.)*)"$`)
)

// plainControl is what a 200 answer with these lines and nothing else leads to.
func plainControl(lines []string) (NotStored, time.Duration) {
	seconds := map[string][]int64{} // -1: not valid
	flags := map[string]bool{}
	for _, line := range lines {
		for _, element := range elements(line) {
			m := directivePattern.FindStringSubmatch(element)
			name, hasValue := strings.ToLower(m[1]), strings.Contains(element, "=")
			switch name {
			case "max-age", "s-maxage", "stale-while-revalidate", "stale-if-error":
				n := int64(-1)
				if v := secondsPattern.FindStringSubmatch(m[3]); v != nil && m[2] == "" {
					var b big.Int
					b.SetString(v[1]+v[2], 10)
					n = int64(min(math.Exp2(31), float64FromBig(&b)))
				}
				seconds[name] = append(seconds[name], n)
			case "private", "no-cache":
				qualified := false
				if v := stringPattern.FindStringSubmatch(m[3]); hasValue && m[2] == "" && (v != nil || tokenPattern.MatchString(m[3])) {
					names := m[3]
					if v != nil {
						names = v[1]
					}
					good, bad := 0, 0
					for n := range strings.SplitSeq(names, ",") {
						if n = strings.Trim(n, " \t"); n == "" {
							continue
						}
						if tokenPattern.MatchString(n) {
							good++
						} else {
							bad++
						}
					}
					qualified = good > 0 && bad == 0
				}
				if !qualified {
					flags[name] = true
				}
			default:
				flags[name] = true
			}
		}
	}
	value := func(name string) int64 {
		n := int64(0)
		for i, v := range seconds[name] {
			if v < 0 || i > 0 && v != n {
				return 0
			}
			n = v
		}
		return n
	}
	grace := max(value("stale-while-revalidate"), value("stale-if-error"))
	if flags["must-revalidate"] || flags["proxy-revalidate"] {
		grace = 0
	}
	var lifetime int64
	switch {
	case flags["no-store"]:
		return NoStore, 0
	case flags["private"]:
		return Private, 0
	case flags["no-cache"]:
		return NoCache, 0
	case seconds["s-maxage"] != nil:
		lifetime = value("s-maxage")
	case seconds["max-age"] != nil:
		lifetime = value("max-age")
	default:
		return NoFreshness, 0
	}
	if lifetime+grace == 0 {
		return Stale, 0
	}
	return Stored, time.Duration(lifetime) * time.Second
}

func float64FromBig(b *big.Int) float64 {
	f, _ := new(big.Float).SetInt(b).Float64()
	return f
}

// FuzzDate checks that every date that is read is one in one of the three forms, by writing it again.
func FuzzDate(f *testing.F) {
	for _, seed := range []string{
		date(0), "Thursday, 18-Aug-50 02:01:18 GMT", "Thu Aug  8 02:01:18 2050", "0", "", "Thu, 18 Aug 2050 2:01:18 GMT", "Thu, 18 Aug 50 02:01:18 GMT",
		" " + date(0) + "\t", "Thu, 31 Feb 2050 02:01:18 GMT", "Thu, 18 Aug 2050 02:01:18 UTC", "Thu, 18 Aug 2050 24:01:18 GMT",
	} {
		f.Add(seed)
	}
	forms := []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, ok := parseDate([]string{text})
		if !ok {
			for _, form := range forms {
				_, err := time.Parse(form, strings.Trim(text, " \t"))
				require.Error(t, err)
			}
			return
		}
		same := false
		for _, form := range forms {
			again, err := time.Parse(form, parsed.UTC().Format(form))
			same = same || err == nil && again.Equal(parsed)
		}
		require.True(t, same)
	})
}
