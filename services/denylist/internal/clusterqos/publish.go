package clusterqos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/lead"
)

const (
	// compareEvery is how often the counts are compared with the limits when nothing
	// new is counted; a sum falls as time passes. What is new is compared at once, but
	// minPause after the last time at the soonest, and ten times as long as it took.
	compareEvery = 500 * time.Millisecond
	minPause     = 50 * time.Millisecond
	// markEvery is the time between two marks of lists that do not change, and
	// piecesEvery between two writings of their pieces, which must come before
	// listsAge.
	markEvery   = 2 * time.Second
	piecesEvery = 20 * time.Second
	// ackTimeout bounds one writing.
	ackTimeout = 2 * time.Second
	// keyBytes is the most that a key takes in a piece beside its own text.
	keyBytes = 3
)

var errOver = errors.New("the term is over")

// publisher writes the lists of one term.
type publisher struct {
	a    *Aggregator
	term *lead.Term

	version int64
	lists   *qos.Blocklists // that were written last
	pieces  int
	wrote   time.Time // the pieces
	marked  time.Time
}

// publish writes lists until ctx ends or the term does.
func (a *Aggregator) publish(ctx context.Context, term *lead.Term) {
	p := &publisher{a: a, term: term}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		begun := time.Now()
		err := p.step(ctx)
		if ctx.Err() != nil || errors.Is(err, errOver) {
			a.fail(&a.publishing, "", nil)
			return
		}
		a.fail(&a.publishing, "publish lists", err)
		timer.Reset(max(minPause, 10*time.Since(begun)))
		select {
		case <-ctx.Done():
			continue
		case <-timer.C:
		}
		timer.Reset(compareEvery)
		select {
		case <-ctx.Done():
		case <-a.counted:
		case <-timer.C:
		}
	}
}

// step writes the lists if they have changed, and the mark if it is due.
func (p *publisher) step(ctx context.Context) error {
	now, ok := p.a.clock.now()
	if !ok || !p.a.current.Load() {
		return nil
	}
	lists, local := p.a.counts.lists(now), time.Now()
	changed := p.lists == nil || !equal(lists, p.lists)
	due := local.Sub(p.wrote) >= piecesEvery
	if !changed && !due && local.Sub(p.marked) < markEvery {
		return nil
	}
	if !p.term.Valid() {
		return errOver
	}
	if changed {
		// Also if this fails: edges may have heard some pieces of it.
		p.version++
		p.lists, p.wrote = nil, time.Time{}
	}
	if changed || due {
		if err := p.writePieces(ctx, lists); err != nil {
			return err
		}
		p.lists, p.wrote = lists, local
	}
	if err := p.writeMark(ctx, local); err != nil {
		return err
	}
	p.marked = local
	if changed {
		p.a.metrics.published.Inc()
		p.a.metrics.listed.WithLabelValues("ip").Set(float64(len(lists.IPs)))
		p.a.metrics.listed.WithLabelValues("subnet").Set(float64(len(lists.Subnets)))
		p.a.metrics.listed.WithLabelValues("host").Set(float64(len(lists.Hosts)))
	}
	return nil
}

func equal(a, b *qos.Blocklists) bool {
	return slices.Equal(a.IPs, b.IPs) && slices.Equal(a.Subnets, b.Subnets) && slices.Equal(a.Hosts, b.Hosts)
}

func (p *publisher) writePieces(ctx context.Context, lists *qos.Blocklists) error {
	pieces := cut(lists)
	p.pieces = len(pieces)
	puts := make([]bus.Put, len(pieces))
	for i, piece := range pieces {
		piece.Term, piece.Version = p.term.Epoch, p.version
		data, err := json.Marshal(piece)
		if err != nil {
			return err
		}
		puts[i] = bus.Put{Subject: wire.QoSPieceSubject(i), Data: data}
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	results, err := bus.PutAll(ctx, p.a.opts.Conn, puts)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

func (p *publisher) writeMark(ctx context.Context, now time.Time) error {
	if !p.term.Valid() {
		return errOver
	}
	data, err := json.Marshal(wire.QoSMark{Term: p.term.Epoch, Version: p.version, Pieces: p.pieces, Written: now.UTC()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if err := bus.PublishAcked(ctx, p.a.opts.Conn, wire.SubjectQoSMark, data, ""); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	return nil
}

// cut makes pieces of the lists, as many as the bounds of package wire ask for. What
// would exceed the greatest number of pieces is left out: the last of the hosts,
// subnets or addresses.
func cut(lists *qos.Blocklists) []wire.QoSLists {
	var pieces []wire.QoSLists
	bytes, keys := 0, 0
	add := func(key string, list func(*wire.QoSLists) *[]string) {
		size := len(key) + keyBytes
		if len(pieces) == 0 || bytes+size > wire.MaxQoSBytes || keys == wire.MaxQoSKeys {
			if len(pieces) == wire.MaxQoSPieces {
				return
			}
			pieces = append(pieces, wire.QoSLists{})
			bytes, keys = 0, 0
		}
		of := list(&pieces[len(pieces)-1])
		*of = append(*of, key)
		bytes, keys = bytes+size, keys+1
	}
	for _, key := range lists.IPs {
		add(key, func(l *wire.QoSLists) *[]string { return &l.IPs })
	}
	for _, key := range lists.Subnets {
		add(key, func(l *wire.QoSLists) *[]string { return &l.Subnets })
	}
	for _, key := range lists.Hosts {
		add(key, func(l *wire.QoSLists) *[]string { return &l.Hosts })
	}
	return pieces
}
