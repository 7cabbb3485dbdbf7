package cache

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// resource is one that changes, breaks and is asked for in every way, and a
// plain account of what the cache may do with it (RFC 9111 section 4). Time goes
// by in steps of 20 s and lifetimes end between two of them, so that it does not
// matter how long the test itself takes.
type resource struct {
	site *site
	path string

	validator bool
	varies    bool

	mu         sync.Mutex
	says       manners
	version    int
	broken     int // 0, a status, or -1: the connection is closed
	deliveries []delivery
	changedAt  time.Time // by an unsafe request
}

// manners are what an answer says about its use.
type manners struct {
	lifetime int // seconds: 10, 50 or 110
	ifError  int // seconds; 0: not said
	flag     string
	cookie   bool
}

// delivery is an answer of the origin: a page, or the confirmation of one.
type delivery struct {
	version int
	kind    string
	at      time.Time
	says    manners
	plain   bool // to a GET without directives, conditions and ranges
	status  int
}

// storable is what sections 3 and 5.2.2 say, with cork-cache-n-queue's rules. What
// a 304 sets as a cookie is not stored, so it does not matter.
func (d *delivery) storable() bool {
	switch d.says.flag {
	case "no-store", "private", "no-cache":
		return false
	}
	return !d.says.cookie || d.status == http.StatusNotModified
}

func (m *manners) String() string {
	text := fmt.Sprintf("max-age=%d", m.lifetime)
	if m.flag != "" {
		text += ", " + m.flag
	}
	if m.ifError > 0 {
		text += fmt.Sprintf(", stale-if-error=%d", m.ifError)
	}
	return text
}

// page is the body of a version, which says what it is.
func page(version int, kind string) string {
	return fmt.Sprintf("%06d %s%s", version, kind, strings.Repeat(".", 200))
}

func tag(version int, kind string) string { return fmt.Sprintf(`"%06d %s"`, version, kind) }

const kindField = "X-Kind"

// ServeHTTP is the origin.
func (r *resource) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.broken < 0:
		panic(http.ErrAbortHandler)
	case r.broken > 0:
		w.WriteHeader(r.broken)
		return
	case req.Method == http.MethodPost:
		r.version++
		r.changedAt = r.site.now()
		w.WriteHeader(http.StatusNoContent)
		return
	}
	kind := "-"
	h := w.Header()
	if r.varies {
		h.Set("Vary", kindField)
		kind = req.Header.Get(kindField)
	}
	h.Set("Cache-Control", r.says.String())
	h.Set("X-Version", page(r.version, kind)[:8])
	if r.validator {
		h.Set("Etag", tag(r.version, kind))
	}
	if r.says.cookie {
		h.Set("Set-Cookie", "secret=1")
	}
	d := delivery{
		version: r.version, kind: kind, at: r.site.now(), says: r.says, status: http.StatusOK,
		plain: req.Method == http.MethodGet && req.Header["Cache-Control"] == nil,
	}
	if r.validator && req.Header.Get("If-None-Match") == tag(r.version, kind) {
		d.status = http.StatusNotModified
		w.WriteHeader(d.status)
	} else {
		_, _ = io.WriteString(w, page(r.version, kind))
	}
	r.deliveries = append(r.deliveries, d)
}

// wish is how a client asks.
type wish struct {
	method    string
	kind      string
	directive string
	have      int // the version that its If-None-Match names; 0: none
	part      bool
}

// mayReuse reports whether the account knows of a delivery of a version that may
// be used now without asking. grace is how long it may be stale.
func (r *resource) mayReuse(version int, kind string, now time.Time, grace time.Duration) bool {
	for _, d := range r.deliveries {
		if d.version != version || d.kind != kind || !d.storable() || !r.changedAt.Before(d.at) && !r.changedAt.IsZero() {
			continue
		}
		if now.Sub(d.at) < time.Duration(d.says.lifetime)*time.Second+max(grace, 0) {
			return true
		}
	}
	return false
}

// mustHit reports whether the last thing that the origin said leaves no reason to
// ask again.
func (r *resource) mustHit(kind string, now time.Time) bool {
	for i := len(r.deliveries) - 1; i >= 0; i-- {
		d := r.deliveries[i]
		if d.kind != kind {
			continue
		}
		return d.plain && d.status == http.StatusOK && d.storable() && (r.changedAt.IsZero() || r.changedAt.Before(d.at)) &&
			now.Sub(d.at) < time.Duration(d.says.lifetime)*time.Second
	}
	return false
}

// ask sends a request and compares the answer with the account.
func (r *resource) ask(t *rapid.T, w wish) {
	var fields []string
	kind := "-"
	if r.varies {
		kind = w.kind
		fields = append(fields, kindField+": "+w.kind)
	}
	if w.directive != "" {
		fields = append(fields, "Cache-Control: "+w.directive)
	}
	if w.have > 0 && r.validator {
		fields = append(fields, "If-None-Match: "+tag(w.have, kind))
	}
	if w.part {
		fields = append(fields, "Range: bytes=2-8")
	}
	now := r.site.now()
	before := r.site.asked.Load()
	mustHit := w.directive == "" && r.mustHit(kind, now)
	got := r.site.ask(w.method, r.path, fields...)
	if got.err != nil {
		t.Fatalf("%+v: %v", w, got.err)
	}
	asked := r.site.asked.Load() > before
	if mustHit && asked {
		t.Fatalf("%+v: the origin was asked although its last answer is fresh", w)
	}
	if got.Header.Get("Set-Cookie") != "" && !asked {
		t.Fatalf("%+v: somebody else's cookie", w)
	}
	version, ok := r.versionOf(t, w, kind, got)
	switch {
	case !ok && !asked && got.StatusCode != http.StatusGatewayTimeout:
		t.Fatalf("%+v: status %d out of nowhere", w, got.StatusCode)
	case !ok:
		return
	case asked && r.broken == 0:
		if version != r.version {
			t.Fatalf("%+v: version %d although the origin was asked and has %d", w, version, r.version)
		}
	case asked: // the origin is broken
		if !r.mayReuseOnError(version, kind, now) {
			t.Fatalf("%+v: version %d instead of an error", w, version)
		}
	case w.directive == "no-cache" || w.directive == "max-age=0":
		t.Fatalf("%+v: the origin was not asked", w)
	case !r.mayReuse(version, kind, now, graceOf(w.directive)):
		t.Fatalf("%+v: version %d must not be used any more", w, version)
	}
}

// graceOf is what max-stale of a client allows.
func graceOf(directive string) time.Duration {
	if directive == "max-stale=40" {
		return 40 * time.Second
	}
	return 0
}

func (r *resource) mayReuseOnError(version int, kind string, now time.Time) bool {
	for _, d := range r.deliveries {
		if d.version == version && r.mayReuse(version, kind, now, time.Duration(d.says.ifError)*time.Second) {
			return true
		}
	}
	return false
}

// versionOf returns the version that an answer holds or confirms, and checks that
// it is whole. It reports false for an answer that is none of the page.
func (r *resource) versionOf(t *rapid.T, w wish, kind string, got reply) (int, bool) {
	etag := strings.TrimSuffix(strings.TrimPrefix(got.Header.Get("Etag"), `"`), `"`)
	text := got.body
	switch got.StatusCode {
	case http.StatusNotModified:
		if w.have == 0 || etag != strings.Trim(tag(w.have, kind), `"`) || text != "" {
			t.Fatalf("%+v: 304 for %q", w, etag)
		}
		return w.have, true
	case http.StatusPartialContent:
		if !w.part || got.Header.Get("Content-Range") != fmt.Sprintf("bytes 2-8/%d", len(page(0, kind))) || len(text) != 7 {
			t.Fatalf("%+v: a part %q, %q", w, got.Header.Get("Content-Range"), text)
		}
		text = "00" + text // versions are small
	case http.StatusOK:
		if w.method == http.MethodHead {
			if text != "" {
				t.Fatalf("%+v: a body %q", w, text)
			}
			text = got.Header.Get("X-Version")
		} else if len(text) != len(page(0, kind)) {
			t.Fatalf("%+v: a torn body %q", w, text)
		}
	default:
		return 0, false
	}
	var version int
	var of string
	if _, err := fmt.Sscanf(text, "%06d %1s", &version, &of); err != nil || of != kind || got.Header.Get("X-Version") != page(version, kind)[:8] {
		t.Fatalf("%+v: body %q, fields of %q", w, text, got.Header.Get("X-Version"))
	}
	return version, true
}

// TestReuse asks in every way, in every order, and compares what comes with the
// account.
func TestReuse(t *testing.T) {
	t.Parallel()
	for name, memory := range map[string]int64{"in memory": 8 << 20, "on disk": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testReuse(t, newSite(t, func(o *Options) { o.MemoryBytes = memory }))
		})
	}
}

func testReuse(t *testing.T, s *site) {
	t.Helper()
	var current atomic.Pointer[resource]
	s.answer(func(w http.ResponseWriter, r *http.Request) { current.Load().ServeHTTP(w, r) })
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		r := &resource{
			site: s, path: fmt.Sprintf("/reuse/%d", n), version: 1, says: manners{lifetime: 50},
			validator: rapid.Bool().Draw(t, "validator"), varies: rapid.Bool().Draw(t, "varies"),
		}
		current.Store(r)
		kinds := rapid.SampledFrom([]string{"a", "b"})
		get := func(t *rapid.T) wish {
			return wish{method: http.MethodGet, kind: kinds.Draw(t, "kind")}
		}
		t.Repeat(map[string]func(*rapid.T){
			"get":   func(t *rapid.T) { r.ask(t, get(t)) },
			"again": func(t *rapid.T) { r.ask(t, get(t)) }, // to be more frequent
			"directive": func(t *rapid.T) {
				w := get(t)
				w.directive = rapid.SampledFrom([]string{"no-cache", "max-age=0", "only-if-cached", "max-stale=40", "no-store"}).Draw(t, "directive")
				r.ask(t, w)
			},
			"condition": func(t *rapid.T) {
				w := get(t)
				w.have = rapid.IntRange(1, r.version).Draw(t, "have")
				r.ask(t, w)
			},
			"head": func(t *rapid.T) { r.ask(t, wish{method: http.MethodHead, kind: kinds.Draw(t, "kind")}) },
			"part": func(t *rapid.T) { r.ask(t, wish{method: http.MethodGet, kind: kinds.Draw(t, "kind"), part: true}) },
			"post": func(t *rapid.T) {
				if got := s.ask(http.MethodPost, r.path); got.err != nil && r.broken >= 0 {
					t.Fatal(got.err)
				}
				s.pass(20 * time.Second) // what is delivered afterwards is later
			},
			"change": func(*rapid.T) { r.mu.Lock(); r.version++; r.mu.Unlock() },
			"break": func(t *rapid.T) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.broken = rapid.SampledFrom([]int{0, 0, 500, 503, -1}).Draw(t, "broken")
			},
			"control": func(t *rapid.T) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.says.lifetime = rapid.SampledFrom([]int{10, 50, 50, 110}).Draw(t, "max-age")
				r.says.ifError = rapid.SampledFrom([]int{0, 40}).Draw(t, "stale-if-error")
				r.says.cookie = rapid.IntRange(0, 7).Draw(t, "cookie") == 0
				r.says.flag = rapid.SampledFrom([]string{"", "", "", "public", "no-store", "private", "no-cache"}).Draw(t, "flag")
			},
			"time": func(t *rapid.T) { s.pass(time.Duration(20*rapid.IntRange(1, 4).Draw(t, "steps")) * time.Second) },
		})
	})
}
