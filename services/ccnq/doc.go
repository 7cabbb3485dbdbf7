// Package ccnq is the standalone program: an edge, a coordinator and a NATS
// server in one process, for one machine.
//
// # State
//
// The coordinator keeps who holds a place in memory; it ends with the process,
// as the requests do. NATS keeps its files below the data folder.
package ccnq

//go:generate sh -c "cd ../.. && go run ./services/ccnq/internal/docgen"
