// Package lifecycle starts the parts of a process in order and stops them in
// the reverse order.
//
// A [Group] is started once and stopped once. Stop may come first, may come
// while Start is under way, and may come from several goroutines: a part is
// stopped exactly if it was started, and everybody who calls Stop gets the same
// result. [Run] adds the signals of the operating system.
//
// # Failure
//
// A part that cannot start makes Start stop those before it. A part that fails
// later says so with [Group.Fail], and [Run] stops the whole group. A part that
// does not stop in its time is left behind, so that the others can stop and the
// process can end.
package lifecycle
