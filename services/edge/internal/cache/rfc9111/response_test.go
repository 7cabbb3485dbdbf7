package rfc9111

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// start is when the responses of the tests come.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fields makes a header of "Name: value" lines.
func fields(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, trimSpace(value))
	}
	return h
}

func get(lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://one.example/a?b", nil)
	r.Header = fields(lines...)
	return r
}

// store stores a 200 answer to a plain GET.
func store(t testing.TB, p *Policy, lines ...string) *Response {
	t.Helper()
	res, reason := p.Store(get(), http.StatusOK, fields(lines...), start, start)
	require.Equal(t, Stored, reason)
	return res
}

// TestResponse_Decide pins decisions for responses of one minute. Sections are of RFC 9111.
func TestResponse_Decide(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		control string // beside max-age=60
		request string // Cache-Control
		age     time.Duration
		want    Decision
	}{
		"fresh 4.2":                           {age: 59 * time.Second, want: Fresh},
		"stale at the lifetime 4.2":           {age: time.Minute, want: Validate},
		"no-cache 5.2.1.4":                    {request: "no-cache", want: Validate},
		"no-cache in another case":            {request: "x, No-Cache", want: Validate},
		"max-age 5.2.1.1":                     {request: "max-age=10", age: 11 * time.Second, want: Validate},
		"max-age reached":                     {request: "max-age=10", age: 10 * time.Second, want: Fresh},
		"max-age=0":                           {request: "max-age=0", age: time.Nanosecond, want: Validate},
		"max-age twice: the smaller":          {request: "max-age=10, max-age=50", age: 11 * time.Second, want: Validate},
		"max-age that is no number":           {request: "max-age=x", age: 11 * time.Second, want: Fresh},
		"max-age quoted":                      {request: `max-age="10"`, age: 11 * time.Second, want: Validate},
		"min-fresh 5.2.1.3":                   {request: "min-fresh=10", age: 51 * time.Second, want: Validate},
		"min-fresh reached":                   {request: "min-fresh=10", age: 50 * time.Second, want: Fresh},
		"max-stale 5.2.1.2":                   {request: "max-stale=10", age: 70 * time.Second, want: StaleAccepted},
		"max-stale passed":                    {request: "max-stale=10", age: 71 * time.Second, want: Validate},
		"max-stale without limit":             {request: "max-stale", age: 100 * time.Hour, want: StaleAccepted},
		"max-stale, must-revalidate":          {control: "must-revalidate", request: "max-stale", age: 61 * time.Second, want: Validate},
		"max-stale, proxy-revalidate":         {control: "proxy-revalidate", request: "max-stale", age: 61 * time.Second, want: Validate},
		"max-stale, s-maxage 5.2.2.10":        {control: "s-maxage=60", request: "max-stale", age: 61 * time.Second, want: Validate},
		"max-stale, but min-fresh":            {request: "max-stale, min-fresh=1", age: 61 * time.Second, want: Validate},
		"max-stale, but max-age":              {request: "max-stale, max-age=5", age: 61 * time.Second, want: Validate},
		"while revalidating, RFC 5861 3":      {control: "stale-while-revalidate=10", age: 69 * time.Second, want: StaleWhileRevalidate},
		"while revalidating, over":            {control: "stale-while-revalidate=10", age: 70 * time.Second, want: Validate},
		"while revalidating, s-maxage":        {control: "s-maxage=60, stale-while-revalidate=10", age: 65 * time.Second, want: StaleWhileRevalidate},
		"while revalidating, must-revalidate": {control: "must-revalidate, stale-while-revalidate=10", age: 65 * time.Second, want: Validate},
		"while revalidating, no-cache":        {control: "stale-while-revalidate=10", request: "no-cache", age: 65 * time.Second, want: Validate},
		"while revalidating, min-fresh":       {control: "stale-while-revalidate=10", request: "min-fresh=1", age: 65 * time.Second, want: Validate},
		"if error only":                       {control: "stale-if-error=10", age: 65 * time.Second, want: Validate},
		"two values of stale-while-revalidate": {
			control: "stale-while-revalidate=10, stale-while-revalidate=20", age: 65 * time.Second, want: Validate,
		},
		"clock set back a little": {age: -59 * time.Second, want: Fresh},
		"clock set back far":      {age: -60 * time.Second, want: Validate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := store(t, &Policy{}, "Cache-Control: max-age=60", "Cache-Control: "+tt.control)
			h := http.Header{}
			if tt.request != "" {
				h.Set("Cache-Control", tt.request)
			}
			require.Equal(t, tt.want, res.Decide(RequestDirectives(h), start.Add(tt.age)))
		})
	}
}

func TestResponse_UsableWhenTheOriginIsNot(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		control   string
		age       time.Duration
		onError   bool
		onRefusal bool
	}{
		"fresh":                   {age: 59 * time.Second, onError: true, onRefusal: true},
		"stale":                   {age: 61 * time.Second},
		"stale-if-error":          {control: "stale-if-error=10", age: 69 * time.Second, onError: true, onRefusal: true},
		"stale-if-error is over":  {control: "stale-if-error=10", age: 70 * time.Second},
		"stale-while-revalidate":  {control: "stale-while-revalidate=10", age: 69 * time.Second, onRefusal: true},
		"the longer one":          {control: "stale-while-revalidate=10, stale-if-error=20", age: 75 * time.Second, onError: true, onRefusal: true},
		"must-revalidate forbids": {control: "must-revalidate, stale-if-error=10", age: 61 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := store(t, &Policy{}, "Cache-Control: max-age=60", "Cache-Control: "+tt.control)
			require.Equal(t, tt.onError, res.UsableOnError(start.Add(tt.age)))
			require.Equal(t, tt.onRefusal, res.UsableOnRefusal(start.Add(tt.age)))
		})
	}
}

func TestResponse_UselessAfter(t *testing.T) {
	t.Parallel()
	for control, want := range map[string]time.Duration{
		"max-age=60":                                    time.Minute,
		"max-age=60, stale-if-error=60":                 2 * time.Minute,
		"max-age=60, stale-while-revalidate=60":         2 * time.Minute,
		"max-age=60, stale-if-error=60, s-maxage=120":   3 * time.Minute,
		"max-age=60, stale-if-error=9, must-revalidate": time.Minute,
	} {
		require.Equal(t, start.Add(want), store(t, &Policy{}, "Cache-Control: "+control).UselessAfter(), control)
	}
	require.Equal(t, start.Add(50*time.Second), store(t, &Policy{}, "Cache-Control: max-age=60", "Age: 10").UselessAfter())
	for _, validator := range []string{`ETag: "a"`, "Last-Modified: " + date(-time.Hour)} {
		res := store(t, &Policy{}, "Cache-Control: max-age=60", validator)
		require.Equal(t, start.Add(time.Minute+24*time.Hour), res.UselessAfter(), validator)
	}
	index := NewIndex("", []string{"A"}, 1).Lasting(start)
	require.Equal(t, start.Truncate(time.Second).UTC(), index.UselessAfter())
	extended, ok := index.Extend(&Response{vary: []string{"B"}})
	require.True(t, ok)
	require.Equal(t, index.UselessAfter(), extended.UselessAfter())
}

func TestResponse_AddValidators(t *testing.T) {
	t.Parallel()
	modified := date(-time.Hour)
	out := fields(`If-Match: "x"`, `If-None-Match: "x"`, "If-Modified-Since: x", "If-Unmodified-Since: x", "If-Range: x", "Range: bytes=0-", "Foo: 1")
	require.True(t, store(t, &Policy{}, "Cache-Control: max-age=1", `ETag: W/"a"`, "Last-Modified: "+modified).AddValidators(out))
	require.Equal(t, fields("Foo: 1", `If-None-Match: W/"a"`, "If-Modified-Since: "+modified), out)

	out = fields(`If-None-Match: "x"`)
	require.False(t, store(t, &Policy{}, "Cache-Control: max-age=1", `ETag: "a"`, `ETag: "b"`, "Last-Modified: never").AddValidators(out))
	require.Empty(t, out)
}

func TestDecision_String(t *testing.T) {
	t.Parallel()
	require.Equal(t, "fresh stale-accepted stale-while-revalidate validate decision 9",
		strings.Join([]string{Fresh.String(), StaleAccepted.String(), StaleWhileRevalidate.String(), Validate.String(), Decision(9).String()}, " "))
}

//nolint:paralleltest // it counts allocations
func TestResponse_DecideAllocatesNothing(t *testing.T) {
	res := store(t, &Policy{}, "Cache-Control: max-age=60")
	plain, asking := fields("Accept: */*"), fields(`Cache-Control: max-age="5", x="a,b", min-fresh=1`)
	now := start.Add(time.Second)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if res.Decide(RequestDirectives(plain), now) != Fresh || res.Precondition(plain) || !res.IfRange(plain) || ForOrigin(plain) {
			t.Fail()
		}
		if res.Decide(RequestDirectives(asking), now) != Fresh {
			t.Fail()
		}
	}))
}
