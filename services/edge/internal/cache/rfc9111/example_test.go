package rfc9111_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
)

// A response is stored, used, and confirmed by the origin when it has become stale.
func Example() {
	policy := &rfc9111.Policy{}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	request := httptest.NewRequest(http.MethodGet, "http://one.example/page", nil)

	answer := http.Header{"Cache-Control": {"max-age=60"}, "Etag": {`"v1"`}}
	stored, reason := policy.Store(request, http.StatusOK, answer, now, now)
	if reason != rfc9111.Stored {
		fmt.Println("not stored:", reason)
		return
	}
	directives := rfc9111.RequestDirectives(request.Header)
	fmt.Println(stored.Decide(directives, now.Add(59*time.Second)))
	now = now.Add(time.Minute)
	fmt.Println(stored.Decide(directives, now))

	question := http.Header{}
	stored.AddValidators(question)
	fmt.Println("If-None-Match:", question.Get("If-None-Match"))
	confirmation := http.Header{"Etag": {`"v1"`}} // of a 304
	stored, _ = policy.Freshen(stored, request, confirmation, now, now)
	fmt.Println(stored.Decide(directives, now), stored.FreshFor(now))
	// Output:
	// fresh
	// validate
	// If-None-Match: "v1"
	// fresh 1m0s
}
