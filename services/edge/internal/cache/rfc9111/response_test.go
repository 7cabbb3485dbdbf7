package rfc9111

import (
	"net/http"
	"net/http/httptest"
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
		for i := range len(line) {
			if line[i] == ':' {
				h.Add(line[:i], trimSpace(line[i+1:]))
				break
			}
		}
	}
	return h
}

func get(lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://one.example/a?b", nil)
	r.Header = fields(lines...)
	return r
}

// store stores a 200 answer to a plain GET.
func store(t *testing.T, p *Policy, lines ...string) *Response {
	t.Helper()
	res, reason := p.Store(get(), http.StatusOK, fields(lines...), start, start)
	require.Equal(t, Stored, reason)
	return res
}

func TestResponse_DecideAllocatesNothing(t *testing.T) {
	res := store(t, &Policy{}, "Cache-Control: max-age=60")
	h := fields("Accept: */*")
	now := start.Add(time.Second)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if res.Decide(RequestDirectives(h), now) != Fresh || res.Precondition(h) {
			t.Fail()
		}
	}))
}
