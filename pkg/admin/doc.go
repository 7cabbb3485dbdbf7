// Package admin is what an operator sees of a running service: metrics, health,
// profiles, and the format of the log.
//
// # The listener
//
// GET /metrics answers in Prometheus' text format. GET /healthz answers 200 as
// long as the process can answer at all. GET /readyz names the parts of the
// service and says how they are: 200 while the service can take traffic, 503
// when it should get none. A part that is degraded does not make the service
// unready: ccnq goes on without it. GET /debug/pprof/ is there by option. A
// service may add routes of its own.
//
// The listener has no authentication. It belongs on a loopback or private
// address and must never be published.
//
// # What is authoritative
//
// Nothing here: each request asks the parts anew, so an answer is as fresh as
// what the part knows of itself.
package admin
