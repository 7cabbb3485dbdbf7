package rfc9111

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// date formats a time relative to start for a header.
func date(offset time.Duration) string { return start.Add(offset).Format(http.TimeFormat) }

// TestPolicy_StoreLifetime pins freshness lifetime and initial age of RFC 9111 section 4.2 for 200 answers that are
// stored. Sections are of RFC 9111 unless another one is named.
func TestPolicy_StoreLifetime(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		policy   Policy
		header   []string
		lifetime time.Duration
		age      time.Duration
	}{
		"max-age 5.2.2.1":                {header: []string{"Cache-Control: max-age=60"}, lifetime: time.Minute},
		"max-age in another case 5.2":    {header: []string{"Cache-Control: MaX-aGe=60"}, lifetime: time.Minute},
		"max-age quoted 5.2":             {header: []string{`Cache-Control: max-age="60"`}, lifetime: time.Minute},
		"max-age with zeros in front":    {header: []string{"Cache-Control: max-age=0060"}, lifetime: time.Minute},
		"max-age beyond 2^31 1.2.2":      {header: []string{"Cache-Control: max-age=99999999999999999999999"}, lifetime: maxDelta * time.Second},
		"max-age twice the same 4.2.1":   {header: []string{"Cache-Control: max-age=60", "Cache-Control: max-age=60"}, lifetime: time.Minute},
		"max-age among extensions 5.2.3": {header: []string{`Cache-Control: a, b="max-age=1, no-store", max-age=60, c=`}, lifetime: time.Minute},
		"s-maxage before max-age 4.2.1":  {header: []string{"Cache-Control: max-age=1, s-maxage=60"}, lifetime: time.Minute},
		"max-age before Expires 5.3":     {header: []string{"Cache-Control: max-age=60", "Expires: " + date(-day)}, lifetime: time.Minute},
		"Expires minus Date 4.2.1":       {header: []string{"Date: " + date(-10*time.Second), "Expires: " + date(time.Minute)}, lifetime: 70 * time.Second, age: 10 * time.Second},
		"Expires without Date":           {header: []string{"Expires: " + date(time.Minute)}, lifetime: time.Minute},
		"Expires with a Date that is none": {
			header: []string{"Date: yesterday", "Expires: " + date(time.Minute)}, lifetime: time.Minute,
		},
		"Expires in asctime form": {header: []string{"Expires: " + start.Add(time.Minute).Format(time.ANSIC)}, lifetime: time.Minute},
		"Age 5.1":                 {header: []string{"Cache-Control: max-age=60", "Age: 20"}, lifetime: time.Minute, age: 20 * time.Second},
		"Age: the first counts 5.1": {
			header: []string{"Cache-Control: max-age=60", "Age: 20, 50", "Age: 55"}, lifetime: time.Minute, age: 20 * time.Second,
		},
		"Age that is no number is ignored 5.1": {header: []string{"Cache-Control: max-age=60", "Age: -50"}, lifetime: time.Minute},
		"Age with a parameter": {
			header: []string{"Cache-Control: max-age=60", "Age: 20;a=1"}, lifetime: time.Minute, age: 20 * time.Second,
		},
		"old Date counts as age 4.2.3": {
			header: []string{"Cache-Control: max-age=60", "Date: " + date(-30*time.Second), "Age: 5"}, lifetime: time.Minute, age: 30 * time.Second,
		},
		"Date ahead of the clock": {header: []string{"Cache-Control: max-age=60", "Date: " + date(day)}, lifetime: time.Minute},
		"fallback":                {policy: Policy{TTL: time.Minute}, lifetime: time.Minute},
		"fallback with public":    {policy: Policy{TTL: time.Minute}, header: []string{"Cache-Control: public"}, lifetime: time.Minute},
		"fallback not with a lifetime": {
			policy: Policy{TTL: time.Hour}, header: []string{"Cache-Control: max-age=60"}, lifetime: time.Minute,
		},
		"heuristic 4.2.2": {
			header: []string{"Date: " + date(0), "Last-Modified: " + date(-100*time.Second)}, lifetime: 10 * time.Second,
		},
		"heuristic is at most a minute": {
			header: []string{"Date: " + date(0), "Last-Modified: " + date(-365*day)}, lifetime: time.Minute,
		},
		"heuristic not with a fallback": {
			policy: Policy{TTL: time.Hour}, header: []string{"Date: " + date(0), "Last-Modified: " + date(-100*time.Second)}, lifetime: time.Hour,
		},
		"ignored: max-age": {
			policy: Policy{TTL: time.Minute, IgnoreCacheControl: true}, header: []string{"Cache-Control: max-age=5, s-maxage=6"}, lifetime: time.Minute,
		},
		"ignored: no-store, private, no-cache": {
			policy: Policy{TTL: time.Minute, IgnoreCacheControl: true}, header: []string{"Cache-Control: no-store, private, no-cache"}, lifetime: time.Minute,
		},
		"ignored: Expires": {
			policy: Policy{TTL: time.Minute, IgnoreCacheControl: true}, header: []string{"Expires: 0"}, lifetime: time.Minute,
		},
		"ignored: CDN-Cache-Control": {
			policy: Policy{TTL: time.Minute, IgnoreCacheControl: true}, header: []string{"CDN-Cache-Control: no-store"}, lifetime: time.Minute,
		},
		"targeted, RFC 9213 2.2": {
			header: []string{"CDN-Cache-Control: max-age=60", "Cache-Control: no-store, max-age=5", "Expires: 0"}, lifetime: time.Minute,
		},
		"targeted: huge": {header: []string{"CDN-Cache-Control: max-age=99999999999"}, lifetime: maxDelta * time.Second},
		"targeted: extension of any type": {
			header: []string{"CDN-Cache-Control: a, b=(1 2), c=\"x\", max-age=60"}, lifetime: time.Minute,
		},
		"targeted: not a dictionary": {
			header: []string{"CDN-Cache-Control: max-age=5, &&", "Cache-Control: max-age=60"}, lifetime: time.Minute,
		},
		"targeted: wrong type": {
			header: []string{`CDN-Cache-Control: max-age="5"`, "Cache-Control: max-age=60"}, lifetime: time.Minute,
		},
		"targeted: wrong type of a flag": {
			header: []string{`CDN-Cache-Control: max-age=5, no-store=1`, "Cache-Control: max-age=60"}, lifetime: time.Minute,
		},
		"targeted: negative": {header: []string{`CDN-Cache-Control: max-age=-5`, "Cache-Control: max-age=60"}, lifetime: time.Minute},
		"targeted: list":     {header: []string{`CDN-Cache-Control: private=(a b)`, "Cache-Control: max-age=60"}, lifetime: time.Minute},
		"targeted: empty":    {header: []string{`CDN-Cache-Control: `, "Cache-Control: max-age=60"}, lifetime: time.Minute},
		"targeted: false is not set": {
			header: []string{`CDN-Cache-Control: no-store=?0, private=?0, max-age=60`}, lifetime: time.Minute,
		},
		"Pragma says nothing when Cache-Control does 5.4": {
			header: []string{"Cache-Control: max-age=60", "Pragma: no-cache"}, lifetime: time.Minute,
		},
		"stale but usable": {
			header: []string{"Cache-Control: max-age=0, stale-while-revalidate=60"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, reason := tt.policy.Store(get(), http.StatusOK, fields(tt.header...), start, start)
			require.Equal(t, Stored, reason)
			require.Equal(t, tt.lifetime, res.FreshFor(start)+res.Age(start), "lifetime")
			require.Equal(t, tt.age, res.Age(start), "age")
		})
	}
}

// TestPolicy_StoreRefuses pins what is not stored, and the reason.
func TestPolicy_StoreRefuses(t *testing.T) {
	t.Parallel()
	minute := Policy{TTL: time.Minute}
	for name, tt := range map[string]struct {
		policy  Policy
		request []string
		status  int
		header  []string
		want    NotStored
	}{
		"no-store 5.2.2.5":                   {header: []string{"Cache-Control: max-age=60, No-Store"}, want: NoStore},
		"no-store with an argument":          {header: []string{"Cache-Control: max-age=60, no-store=1"}, want: NoStore},
		"no-store beats must-understand":     {header: []string{"Cache-Control: max-age=60, no-store, must-understand"}, want: NoStore},
		"private 5.2.2.7":                    {header: []string{"Cache-Control: private, max-age=60"}, want: Private},
		"private naming nothing":             {header: []string{`Cache-Control: private="", max-age=60`}, want: Private},
		"private naming no field":            {header: []string{`Cache-Control: private="a b", max-age=60`}, want: Private},
		"private with a broken list":         {header: []string{`Cache-Control: max-age=60, private="a`}, want: Private},
		"no-cache 5.2.2.4":                   {header: []string{"Cache-Control: no-cache, max-age=60"}, want: NoCache},
		"targeted no-store":                  {header: []string{"CDN-Cache-Control: no-store", "Cache-Control: max-age=60"}, want: NoStore},
		"targeted private":                   {header: []string{"CDN-Cache-Control: private", "Cache-Control: max-age=60"}, want: Private},
		"targeted no-cache":                  {header: []string{"CDN-Cache-Control: no-cache", "Cache-Control: max-age=60"}, want: NoCache},
		"targeted without a lifetime":        {header: []string{"CDN-Cache-Control: public", "Cache-Control: max-age=60", "Expires: " + date(time.Hour)}, want: NoFreshness},
		"no-store of the request 5.2.1.5":    {request: []string{"Cache-Control: no-store"}, header: []string{"Cache-Control: max-age=60"}, want: NoStoreRequest},
		"Authorization 3.5":                  {request: []string{"Authorization: Basic eA=="}, header: []string{"Cache-Control: max-age=60"}, want: AuthorizedRequest},
		"Authorization, proxy-revalidate":    {request: []string{"Authorization: x"}, header: []string{"Cache-Control: max-age=60, proxy-revalidate"}, want: AuthorizedRequest},
		"Authorization, directives ignored":  {policy: Policy{TTL: time.Minute, IgnoreCacheControl: true}, request: []string{"Authorization: x"}, want: AuthorizedRequest},
		"Set-Cookie":                         {header: []string{"Cache-Control: public, max-age=60", "Set-Cookie: a=b"}, want: SetCookie},
		"Set-Cookie, directives ignored":     {policy: Policy{TTL: time.Minute, IgnoreCacheControl: true}, header: []string{"Set-Cookie: a=b"}, want: SetCookie},
		"Vary: * 4.1":                        {header: []string{"Cache-Control: max-age=60", "Vary: *"}, want: VaryStar},
		"Vary: * in a later line":            {header: []string{"Cache-Control: max-age=60", "Vary: Foo,", "Vary: ,Bar , *"}, want: VaryStar},
		"Vary that is no list of names":      {header: []string{"Cache-Control: max-age=60", "Vary: a b"}, want: VaryStar},
		"Vary by the client's address":       {header: []string{"Cache-Control: max-age=60", "Vary: Accept, x-forwarded-for"}, want: VaryStar},
		"Vary by the request's id":           {header: []string{"Cache-Control: max-age=60", "Vary: X-Request-ID"}, want: VaryStar},
		"Vary by too much":                   {header: []string{"Cache-Control: max-age=60", "Vary: " + manyNames(maxVaryNames+1)}, want: VaryStar},
		"must-understand 5.2.2.3":            {status: 599, header: []string{"Cache-Control: max-age=60, must-understand"}, want: MustUnderstand},
		"nothing stated, no fallback":        {header: []string{`ETag: "a"`}, want: NoFreshness},
		"nothing stated, just changed":       {header: []string{"Last-Modified: " + date(0)}, want: Stale},
		"changed in the future":              {header: []string{"Last-Modified: " + date(time.Hour)}, want: Stale},
		"nothing stated, Pragma":             {policy: minute, header: []string{"Pragma: no-cache"}, want: NoFreshness},
		"nothing stated, status 403":         {policy: minute, status: 403, want: NoFreshness},
		"nothing stated, status 501":         {policy: minute, status: 501, want: NoFreshness},
		"nothing stated, status 500":         {policy: minute, status: 500, header: []string{"Cache-Control: public"}, want: NoFreshness},
		"heuristic not for 202":              {status: 202, header: []string{"Last-Modified: " + date(-time.Hour)}, want: NoFreshness},
		"directives ignored, no fallback":    {policy: Policy{IgnoreCacheControl: true}, header: []string{"Cache-Control: max-age=60"}, want: NoFreshness},
		"directives ignored, status 500":     {policy: Policy{TTL: time.Minute, IgnoreCacheControl: true}, status: 500, header: []string{"Cache-Control: max-age=60"}, want: NoFreshness},
		"max-age=0":                          {header: []string{"Cache-Control: max-age=0", `ETag: "a"`}, want: Stale},
		"max-age negative 4.2.1":             {header: []string{"Cache-Control: max-age=-60"}, want: Stale},
		"max-age in single quotes":           {header: []string{"Cache-Control: max-age='60'"}, want: Stale},
		"max-age without value":              {header: []string{"Cache-Control: max-age", "Expires: " + date(time.Hour)}, want: Stale},
		"max-age with a fraction":            {header: []string{"Cache-Control: max-age=60.0"}, want: Stale},
		"max-age with space before the sign": {header: []string{"Cache-Control: max-age =60"}, want: Stale},
		"max-age with space after the sign":  {header: []string{"Cache-Control: max-age= 60"}, want: Stale},
		"two values of max-age 4.2.1":        {header: []string{"Cache-Control: max-age=60", "Cache-Control: max-age=1800"}, want: Stale},
		"s-maxage=0 beats max-age":           {header: []string{"Cache-Control: max-age=60, s-maxage=0"}, want: Stale},
		"Expires: 0 5.3":                     {policy: minute, header: []string{"Expires: 0"}, want: Stale},
		"Expires at Date":                    {header: []string{"Date: " + date(0), "Expires: " + date(0)}, want: Stale},
		"Expires before Date":                {header: []string{"Date: " + date(400*time.Second), "Expires: " + date(300*time.Second)}, want: Stale},
		"two Expires":                        {header: []string{"Expires: " + date(time.Hour), "Expires: " + date(time.Hour)}, want: Stale},
		"Age beyond the lifetime":            {header: []string{"Cache-Control: max-age=60", "Age: 60"}, want: Stale},
		"Age beyond 2^31":                    {header: []string{"Cache-Control: max-age=60", "Age: 99999999999999999999"}, want: Stale},
		"grace with must-revalidate":         {header: []string{"Cache-Control: max-age=0, must-revalidate, stale-if-error=60"}, want: Stale},
		"206 3.3":                            {status: 206, header: []string{"Cache-Control: max-age=60", "Content-Range: bytes 0-1/2"}, want: Status},
		"304":                                {status: 304, header: []string{"Cache-Control: max-age=60"}, want: Status},
		"412, the client's own condition":    {status: 412, header: []string{"Cache-Control: max-age=60"}, want: Status},
		"417, the client's own expectation":  {status: 417, header: []string{"Cache-Control: max-age=60"}, want: Status},
		"416":                                {status: 416, header: []string{"Cache-Control: max-age=60"}, want: Status},
		"429, RFC 6585 4":                    {status: 429, header: []string{"Cache-Control: max-age=60"}, want: Status},
		"1xx":                                {status: 103, header: []string{"Cache-Control: max-age=60"}, want: Status},
		"too many fields":                    {header: []string{"Cache-Control: max-age=60", "A: " + strings.Repeat("x", maxHeadBytes)}, want: HeadTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.status == 0 {
				tt.status = http.StatusOK
			}
			res, reason := tt.policy.Store(get(tt.request...), tt.status, fields(tt.header...), start, start)
			require.Equal(t, tt.want, reason)
			require.Nil(t, res)
		})
	}
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "Name-%d,", i)
	}
	return b.String()
}

// TestPolicy_StoreAllowed pins what is stored although it looks as if it were not.
func TestPolicy_StoreAllowed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy  Policy
		request []string
		status  int
		header  []string
	}{
		"any final status with a lifetime 3": {status: 599, header: []string{"Cache-Control: max-age=60"}},
		"5xx with a lifetime":                {status: 503, header: []string{"Expires: " + date(time.Hour)}},
		"Authorization, public 3.5":          {request: []string{"Authorization: x"}, header: []string{"Cache-Control: max-age=60, public"}},
		"Authorization, must-revalidate":     {request: []string{"Authorization: x"}, header: []string{"Cache-Control: max-age=60, must-revalidate"}},
		"Authorization, s-maxage":            {request: []string{"Authorization: x"}, header: []string{"Cache-Control: s-maxage=60"}},
		"Authorization, targeted public":     {request: []string{"Authorization: x"}, header: []string{"CDN-Cache-Control: max-age=60, public"}},
		"heuristic with public 4.2.2":        {status: 599, header: []string{"Cache-Control: public", "Last-Modified: " + date(-time.Hour)}},
		"heuristic for 501":                  {status: 501, header: []string{"Last-Modified: " + date(-time.Hour)}},
		"must-understand, known status":      {status: 404, header: []string{"Cache-Control: max-age=60, must-understand"}},
		"Cookie of the request":              {request: []string{"Cookie: a=b"}, header: []string{"Cache-Control: max-age=60"}},
		"Set-Cookie, stripped":               {policy: Policy{StripSetCookie: true}, header: []string{"Cache-Control: max-age=60", "Set-Cookie: a=b"}},
		"whole answer to a Range":            {request: []string{"Range: bytes=0-1"}, header: []string{"Cache-Control: max-age=60"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.status == 0 {
				tt.status = http.StatusOK
			}
			res, reason := tt.policy.Store(get(tt.request...), tt.status, fields(tt.header...), start, start)
			require.Equal(t, Stored, reason)
			require.Equal(t, tt.status, res.Status)
			require.Equal(t, Fresh, res.Decide(Directives{}, start))
		})
	}
}

func TestPolicy_StoreOtherMethods(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodOptions, "get"} {
		r := httptest.NewRequest(http.MethodGet, "http://one.example/", nil)
		r.Method = method
		_, reason := (&Policy{TTL: time.Minute}).Store(r, http.StatusOK, http.Header{}, start, start)
		require.Equal(t, Method, reason, method)
	}
}

// TestPolicy_StoreFields pins which fields are stored (section 3.1).
func TestPolicy_StoreFields(t *testing.T) {
	t.Parallel()
	h := fields("Cache-Control: max-age=60, private=\"P, q\", no-cache=\"n\"", "Connection: close, Hop", "Connection: hop-2",
		"Hop: 1", "Hop-2: 1", "P: 1", "Q: 1", "N: 1", "Age: 5", "Keep-Alive: 1", "Proxy-Authenticate: 1",
		"Proxy-Authentication-Info: 1", "Proxy-Authorization: 1", "Proxy-Connection: 1", "Te: 1", "Trailer: 1",
		"Transfer-Encoding: chunked", "Upgrade: 1", "X-Cache: MISS", "Set-Cookie: a=b", "Set-Cookie: c=d",
		"Link: 1", "Link: 2", "Content-Range: 1", "Content-Length: 5", "Set-Cookie2: 1", "Cache-Status: other; hit")
	before := h.Clone()
	res, reason := (&Policy{StripSetCookie: true}).Store(get(), http.StatusOK, h, start, start)
	require.Equal(t, Stored, reason)
	require.Equal(t, before, h, "the live answer keeps all of it")
	require.Equal(t, http.Header{
		"Cache-Control":  {`max-age=60, private="P, q", no-cache="n"`},
		"Cache-Status":   {"other; hit"},
		"Content-Length": {"5"},
		"Content-Range":  {"1"},
		"Date":           {date(0)},
		"Link":           {"1", "2"},
		"Set-Cookie2":    {"1"},
	}, res.Header)
	h["Link"][0] = "changed"
	require.Equal(t, "1", res.Header["Link"][0], "a copy")
}

func TestPolicy_StoreDelay(t *testing.T) {
	t.Parallel()
	// The time that the answer took counts as age (section 4.2.3): the origin may have made it at once.
	res, reason := (&Policy{}).Store(get(), http.StatusOK, fields("Cache-Control: max-age=60", "Age: 10"), start, start.Add(5*time.Second))
	require.Equal(t, Stored, reason)
	require.Equal(t, 15*time.Second, res.Age(start.Add(5*time.Second)))
	// A clock that was set back in between does not make it younger.
	res, reason = (&Policy{}).Store(get(), http.StatusOK, fields("Cache-Control: max-age=60", "Age: 10"), start, start.Add(-5*time.Second))
	require.Equal(t, Stored, reason)
	require.Equal(t, 10*time.Second, res.Age(start.Add(-5*time.Second)))
}
