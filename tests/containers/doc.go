// Command containers tests the deployment of deploy/compose.yaml with real
// containers: it starts the whole set, floods it through the front, kills and
// cuts off one part after the other, rolls the edges, tries stolen credentials,
// and prints a table of what it found. It needs a container engine with compose,
// and removes everything that it made.
//
// Load is bounded, and enters through a port on the loopback interface alone.
//
//	go run ./tests/containers            # all of it: some eight minutes
//	go run ./tests/containers -only kill # one part
package main
