package clusterqos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

// lease is a key of a KV bucket that ends by itself unless it is written again, and
// that is only written over what was seen there. The server's clock alone counts.
// It is a [lead.Lease], for one goroutine.
//
// An epoch is the place of the first write in the bucket's stream, added to the time
// at which the stream was made in nanoseconds: it also grows when the server loses
// the stream, which has fewer messages than nanoseconds.
type lease struct {
	conn    *bus.Conn
	observe func(server time.Time)
	missing func() // is told that the bucket is not there

	seq   uint64 // place of this process' last write, 0 if it does not lead
	epoch int64
}

// Lead implements [lead.Lease].
func (l *lease) Lead(ctx context.Context, holder string, length time.Duration) (int64, bool, error) {
	seq, err := l.put(ctx, holder, length, l.seq)
	if errors.Is(err, bus.ErrConflict) {
		var free bool
		if seq, free, err = l.look(ctx, holder); err == nil && free {
			seq, err = l.put(ctx, holder, length, seq)
		}
	}
	switch {
	case errors.Is(err, errHeld), errors.Is(err, bus.ErrConflict):
		l.seq, l.epoch = 0, 0
		return 0, false, nil
	case err != nil:
		if errors.Is(err, bus.ErrNoResponders) || errors.Is(err, bus.ErrNotFound) {
			l.missing()
		}
		return 0, false, err
	}
	if l.epoch == 0 {
		info, err := bus.StreamInfo(ctx, l.conn, wire.StreamQoSLease)
		if err != nil {
			return 0, false, err // the next call finds that this process holds it
		}
		l.epoch = info.Created.UnixNano() + int64(seq)
	}
	l.seq = seq
	// What time it is there is known from others' leases and edges' hits, too; this
	// is for the leader of idle edges.
	if m, err := bus.DirectGetLast(ctx, l.conn, wire.StreamQoSLease, wire.SubjectQoSLease); err == nil {
		l.observe(m.Time)
	}
	return l.epoch, true, nil
}

// errHeld means that another process leads.
var errHeld = errors.New("another process holds the lease")

// look finds out what is there: the place of a message that may be written over, as
// nobody or this process holds the lease, or [errHeld].
func (l *lease) look(ctx context.Context, holder string) (seq uint64, free bool, err error) {
	m, err := bus.DirectGetLast(ctx, l.conn, wire.StreamQoSLease, wire.SubjectQoSLease)
	if errors.Is(err, bus.ErrNotFound) {
		l.epoch = 0 // it has ended
		return 0, true, nil
	}
	if err != nil {
		return 0, false, err
	}
	l.observe(m.Time)
	is, err := wire.Decode[wire.QoSLease](m.Data)
	switch {
	case err == nil && is.Holder == holder: // an answer was lost
		return m.Sequence, true, nil
	case err == nil && is.Holder != "":
		return 0, false, errHeld
	}
	l.epoch = 0
	return m.Sequence, true, nil // given back, or nonsense
}

// put writes the lease over the message at a place, 0 for none.
func (l *lease) put(ctx context.Context, holder string, length time.Duration, over uint64) (uint64, error) {
	data, err := json.Marshal(wire.QoSLease{Holder: holder})
	if err != nil {
		return 0, err
	}
	seq, err := bus.PutBlock(ctx, l.conn, bus.Put{
		Subject: wire.SubjectQoSLease, Data: data, TTL: length, Conditional: true, Expect: over,
	})
	if err != nil {
		return 0, fmt.Errorf("lease: %w", err)
	}
	return seq, nil
}

// Resign implements [lead.Lease].
func (l *lease) Resign(ctx context.Context, epoch int64) error {
	if l.seq == 0 || epoch != l.epoch {
		return nil
	}
	_, err := l.put(ctx, "", time.Second, l.seq)
	l.seq, l.epoch = 0, 0
	return err
}
