// Package streams makes what the denylist keeps in NATS: the streams of the
// events, the bucket of the blocks, and the consumer for alerts. Nobody else
// makes them.
//
// # State
//
// NATS has it. The [Keeper] only remembers whether everything was there after
// the connection came up last, or after somebody missed something
// ([Keeper.Missing]). What exists is changed to the settings, and nothing is
// ever deleted by this package; a smaller bound makes NATS drop the oldest
// events itself.
//
// # Failure
//
// Making them is tried until it succeeds. Meanwhile edges keep their events in
// their outboxes, and their last known blocks.
package streams
