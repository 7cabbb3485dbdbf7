package admin

import (
	"encoding/json"
	"net/http"
)

type state int

const (
	ok state = iota
	degraded
	notReady
)

// Status says how one part of a service is. The zero value is [OK].
type Status struct {
	state  state
	reason string
}

// OK is the status of a part that works.
var OK = Status{}

// Degraded is the status of a part that does not work, or not fully, while the
// service goes on without it. The reason is shown to the operator.
func Degraded(reason string) Status { return Status{degraded, reason} }

// NotReady is the status of a part without which the service must not get
// traffic. The reason is shown to the operator.
func NotReady(reason string) Status { return Status{notReady, reason} }

// String returns ok, or the state with its reason.
func (s Status) String() string {
	switch s.state {
	case degraded:
		return "degraded: " + s.reason
	case notReady:
		return "not ready: " + s.reason
	}
	return "ok"
}

// Checks has one function for each part of a service, by the name of the part.
// The functions are called for each request of /readyz, at once or not, and
// must answer from memory.
type Checks map[string]func() Status

// Dispensable returns the checks as those of parts that a program can do
// without for a while: what is not ready there is degraded here.
func (c Checks) Dispensable() Checks {
	out := make(Checks, len(c))
	for name, check := range c {
		out[name] = func() Status {
			status := check()
			if status.state == notReady {
				status.state = degraded
			}
			return status
		}
	}
	return out
}

// readiness is the body of /readyz.
type readiness struct {
	Ready bool              `json:"ready"`
	Parts map[string]string `json:"parts"`
}

// ServeHTTP answers /readyz.
func (c Checks) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	answer := readiness{Ready: true, Parts: map[string]string{}}
	for name, check := range c {
		status := check()
		answer.Parts[name] = status.String()
		answer.Ready = answer.Ready && status.state != notReady
	}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, "readiness cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !answer.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}
