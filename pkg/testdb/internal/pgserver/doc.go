// Package pgserver runs a throwaway Postgres server from the binaries on the
// machine.
//
// # What is authoritative
//
// The operating system: a [Server] holds the process it started and a folder
// with its data, and nothing else. No goroutine runs while a server does, so
// leak detectors stay quiet.
//
// # Failure
//
// A small shell process, the watcher, holds the read end of a pipe whose write
// end only this process has. When this process ends, however it ends, the pipe
// closes, and the watcher stops the server at once and removes its folder.
//
// A server is not durable on purpose (fsync is off): its data survives a crash
// of Postgres, not one of the machine.
package pgserver
