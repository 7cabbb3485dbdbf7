package rfc9111

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// answer is an answer of an origin by its meaning, in whole seconds; -1 means that something is not stated.
type answer struct {
	status                              int
	maxAge, sMaxAge, expires, age       int // expires relative to Date
	dateBehind                          int // how old Date is on arrival; -1: no Date
	modifiedBehind                      int // relative to Date
	delay                               int // between request and answer
	noStore, private, noCache, public   bool
	mustRevalidate, proxyRevalidate     bool
	whileRevalidate, ifError            int
	setCookie, varyStar, authorized     bool
	requestNoStore, pragma, understands bool
}

// wish is what a request asks for.
type wish struct {
	noCache                    bool
	maxAge, minFresh, maxStale int // maxStale 1000: without limit
}

func drawAnswer(t *rapid.T) answer {
	// Rare flags would hide the rest if they were as likely as not.
	rarely := rapid.Custom(func(t *rapid.T) bool { return rapid.IntRange(0, 19).Draw(t, "of 20") == 0 })
	some := rapid.Custom(func(t *rapid.T) int { return max(rapid.IntRange(-60, 60).Draw(t, "s"), -1) })
	return answer{
		status: rapid.SampledFrom([]int{200, 200, 200, 203, 204, 206, 302, 304, 404, 403, 429, 500, 501, 503, 599}).Draw(t, "status"),
		maxAge: some.Draw(t, "max-age"), sMaxAge: some.Draw(t, "s-maxage"), expires: some.Draw(t, "Expires"), age: some.Draw(t, "Age"),
		dateBehind: some.Draw(t, "Date"), modifiedBehind: some.Draw(t, "Last-Modified") * 10, delay: rapid.IntRange(0, 5).Draw(t, "delay"),
		noStore: rarely.Draw(t, "no-store"), private: rarely.Draw(t, "private"), noCache: rarely.Draw(t, "no-cache"), public: rapid.Bool().Draw(t, "public"),
		mustRevalidate: rarely.Draw(t, "must-revalidate"), proxyRevalidate: rarely.Draw(t, "proxy-revalidate"),
		whileRevalidate: some.Draw(t, "stale-while-revalidate"), ifError: some.Draw(t, "stale-if-error"),
		setCookie: rarely.Draw(t, "Set-Cookie"), varyStar: rarely.Draw(t, "Vary"), authorized: rarely.Draw(t, "Authorization"),
		requestNoStore: rarely.Draw(t, "request no-store"), pragma: rarely.Draw(t, "Pragma"), understands: rarely.Draw(t, "must-understand"),
	}
}

// header writes the answer, received at the time start, as an origin would.
func (a answer) header() http.Header {
	var directives []string
	for name, n := range map[string]int{
		"max-age": a.maxAge, "s-maxage": a.sMaxAge, "stale-while-revalidate": a.whileRevalidate, "stale-if-error": a.ifError,
	} {
		if n >= 0 {
			directives = append(directives, fmt.Sprintf("%s=%d", name, n))
		}
	}
	for name, set := range map[string]bool{
		"no-store": a.noStore, "private": a.private, "no-cache": a.noCache, "public": a.public, "must-revalidate": a.mustRevalidate,
		"proxy-revalidate": a.proxyRevalidate, "must-understand": a.understands,
	} {
		if set {
			directives = append(directives, name)
		}
	}
	h := http.Header{}
	if directives != nil {
		h.Set("Cache-Control", strings.Join(directives, ", "))
	}
	behind := time.Duration(max(a.dateBehind, 0)) * time.Second
	if a.dateBehind >= 0 {
		h.Set("Date", date(-behind))
	}
	if a.expires >= 0 {
		h.Set("Expires", date(time.Duration(a.expires)*time.Second-behind))
	}
	if a.modifiedBehind >= 0 {
		h.Set("Last-Modified", date(-behind-time.Duration(a.modifiedBehind)*time.Second))
	}
	if a.age >= 0 {
		h.Set("Age", fmt.Sprint(a.age))
	}
	for name, set := range map[string]bool{"Set-Cookie: a=b": a.setCookie, "Vary: *": a.varyStar, "Pragma: no-cache": a.pragma} {
		if key, value, _ := strings.Cut(name, ": "); set {
			h.Set(key, value)
		}
	}
	return h
}

// lifetime is section 4.2.1 and 4.2.2 word by word; -1 if there is none.
func (a answer) lifetime(ttl int) int {
	cacheable := slices.Contains([]int{200, 203, 204, 404, 501}, a.status)
	if a.sMaxAge >= 0 {
		return a.sMaxAge
	}
	if a.maxAge >= 0 {
		return a.maxAge
	}
	if a.expires >= 0 {
		return a.expires
	}
	if a.pragma {
		return -1
	}
	if ttl > 0 {
		if cacheable && a.status != 501 {
			return ttl
		}
		return -1
	}
	if a.modifiedBehind >= 0 && (cacheable || a.public) {
		return min(a.modifiedBehind/10, 60)
	}
	return -1
}

// arrivalAge is section 4.2.3 word by word.
func (a answer) arrivalAge() int {
	apparentAge := max(0, a.dateBehind)
	correctedAge := max(0, a.age) + a.delay
	return max(apparentAge, correctedAge)
}

// storable is section 3, with what the options add.
func (a answer) storable(ttl int) bool {
	lifetime := a.lifetime(ttl)
	grace := max(a.whileRevalidate, a.ifError, 0)
	if a.mustRevalidate || a.proxyRevalidate {
		grace = 0
	}
	switch {
	case a.status == 206, a.status == 304, a.status == 429,
		a.noStore, a.private, a.noCache, a.setCookie, a.varyStar, a.requestNoStore,
		a.understands && a.status == 599,
		a.authorized && !a.public && !a.mustRevalidate && a.sMaxAge < 0,
		lifetime < 0:
		return false
	}
	return a.arrivalAge() < lifetime+grace
}

// reuse is section 4: may the answer be used seconds after it came, and how?
func (a answer) reuse(w wish, ttl, seconds int) Decision {
	age := a.arrivalAge() + seconds
	lifetime := a.lifetime(ttl)
	if w.noCache || w.maxAge >= 0 && age > w.maxAge {
		return Validate
	}
	if lifetime > age {
		if w.minFresh > 0 && lifetime-age < w.minFresh {
			return Validate
		}
		return Fresh
	}
	if w.minFresh > 0 || a.mustRevalidate || a.proxyRevalidate {
		return Validate
	}
	staleFor := age - lifetime
	if staleFor < a.whileRevalidate {
		return StaleWhileRevalidate
	}
	if w.maxStale >= 0 && (w.maxStale == 1000 || staleFor <= w.maxStale) && a.sMaxAge < 0 {
		return StaleAccepted
	}
	return Validate
}

func (w wish) header() http.Header {
	var directives []string
	if w.noCache {
		directives = append(directives, "no-cache")
	}
	for name, n := range map[string]int{"max-age": w.maxAge, "min-fresh": w.minFresh, "max-stale": w.maxStale} {
		switch {
		case n == 1000:
			directives = append(directives, name)
		case n >= 0:
			directives = append(directives, fmt.Sprintf(`%s="%d"`, name, n))
		}
	}
	return http.Header{"Cache-Control": directives} // a line for each
}

// TestModel compares storing and reuse with a naive reading of the RFC, over made-up time.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := drawAnswer(t)
		ttl := max(rapid.IntRange(-30, 30).Draw(t, "ttl"), 0)
		r := get()
		if a.authorized {
			r.Header.Set("Authorization", "Basic eDp5")
		}
		if a.requestNoStore {
			r.Header.Set("Cache-Control", "no-store")
		}
		p := &Policy{TTL: time.Duration(ttl) * time.Second}
		res, reason := p.Store(r, a.status, a.header(), start.Add(-time.Duration(a.delay)*time.Second), start)
		if (reason == Stored) != a.storable(ttl) {
			t.Fatalf("stored: %q, the model says %v", reason, a.storable(ttl))
		}
		if reason != Stored {
			return
		}
		for range 20 {
			seconds := rapid.IntRange(0, 150).Draw(t, "later")
			w := wish{noCache: rapid.IntRange(0, 9).Draw(t, "no-cache") == 0, maxAge: -1, minFresh: -1, maxStale: -1}
			for _, n := range []*int{&w.maxAge, &w.minFresh, &w.maxStale} {
				*n = max(rapid.IntRange(-100, 60).Draw(t, "directive"), -1)
			}
			if rapid.IntRange(0, 9).Draw(t, "any") == 0 {
				w.maxStale = 1000
			}
			now := start.Add(time.Duration(seconds) * time.Second)
			got, want := res.Decide(RequestDirectives(w.header()), now), a.reuse(w, ttl, seconds)
			if got != want {
				t.Fatalf("%d s later %+v: %v, the model says %v", seconds, w, got, want)
			}
		}
	})
}
