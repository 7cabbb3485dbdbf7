// Package redistest gives a test a Redis server of its own, which it may break.
//
// The server comes from the machine: redis-server or valkey-server on PATH. With
// CCNQ_TEST_INSTALL=1 the system's package manager installs one first if there is none.
// Otherwise the test fails and says what to install. No test is skipped.
//
// Data is in a folder of the server, handed to the system before each reply, so it is back
// after a restart. A shell process, the watcher, holds the read end of a pipe whose write end
// only this process has: when this process ends, however it ends, the watcher kills
// the server and removes the folder.
package redistest
