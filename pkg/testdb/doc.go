// Package testdb gives each test a Postgres schema of its own, and the fault
// tests a Postgres server of their own.
//
// # Where the server comes from
//
// In this order: the one that CCNQ_TEST_DATABASE_URL names (make test starts
// one for all packages); one that this process starts from the server binaries
// on the machine, once, as an unprivileged user; with CCNQ_TEST_INSTALL=1, one
// that the system's package manager installs first. Otherwise the test fails
// and says what to install. No test is skipped.
//
// # Isolation
//
// Schemas have random names, so tests and processes can share one server. A
// schema is dropped when its test ends. If a process is killed, its schemas
// stay in a server that CCNQ_TEST_DATABASE_URL names; a server that the
// process had started ends with it.
//
// All functions are safe for concurrent use unless they say otherwise.
package testdb
