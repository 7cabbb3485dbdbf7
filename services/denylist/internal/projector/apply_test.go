package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// refusing is a store that notes the batches it is asked to apply, and refuses
// those that refuse says.
type refusing struct {
	store.Store
	refuse  func(store.Batch) error
	batches []store.Batch
}

func (r *refusing) Apply(_ context.Context, _ int64, _ store.Checkpoint, b store.Batch) (store.Result, error) {
	r.batches = append(r.batches, b)
	if err := r.refuse(b); err != nil {
		return store.Result{}, err
	}
	return store.Result{Applied: len(b.Records)}, nil
}

func (r *refusing) sizes() (sizes []int) {
	for _, b := range r.batches {
		sizes = append(sizes, len(b.Records)+len(b.Quarantined))
	}
	return sizes
}

// newPage is a page of messages from 1 to n, of which bad ones are malformed.
func newPage(t *testing.T, n int, bad func(seq int) bool) *page {
	t.Helper()
	subject := fmt.Sprintf(wire.SubjectDenied, wire.DeniedQueueFull, "edge-1")
	p := &page{}
	for seq := 1; seq <= n; seq++ {
		m := message(t, subject, deniedEvent())
		m.Sequence = uint64(seq)
		if bad(seq) {
			m.Data = []byte("{")
		}
		p.messages = append(p.messages, m)
	}
	p.batch = batch(p.messages, store.Checkpoint{Created: at})
	return p
}

func none(int) bool { return false }

func newTestProjector(refuse func(store.Batch) error) (*Projector, *refusing, *bytes.Buffer) {
	s := &refusing{refuse: refuse}
	log := &bytes.Buffer{}
	return New(Options{
		Store: s, Changed: func() {}, Logger: slog.New(slog.NewTextHandler(log, nil)), Registry: prometheus.NewRegistry(),
	}), s, log
}

// applyAll applies a page with up to so many attempts.
func applyAll(t *testing.T, p *Projector, page *page, attempts int) {
	t.Helper()
	from := store.Checkpoint{Created: at}
	for range attempts {
		if len(page.messages) == 0 {
			return
		}
		n, err := p.apply(t.Context(), 1, from, page)
		if err == nil {
			page.drop(n)
		}
	}
}

// TestOutageKeepsTheBatchWhole has a store that cannot be reached for a while:
// that is no reason for small batches when it is back.
func TestOutageKeepsTheBatchWhole(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]error{
		"no connection": errors.New("dial tcp: connection refused"),
		"shutting down": fmt.Errorf("denylist apply: %w", &pgconn.PgError{Code: "57P01"}),
		"other leader":  store.ErrNotLeader,
		"checkpoint":    store.ErrCheckpoint,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			p, s, _ := newTestProjector(func(store.Batch) error {
				if calls++; calls <= 12 {
					return outage
				}
				return nil
			})
			applyAll(t, p, newPage(t, 100, none), 13)
			require.Len(t, s.batches, 13)
			for _, n := range s.sizes() {
				require.Equal(t, 100, n)
			}
		})
	}
}

func TestBatchesBecomeSmaller(t *testing.T) {
	t.Parallel()
	t.Run("until the message is found that the store cannot take", func(t *testing.T) {
		t.Parallel()
		p, s, _ := newTestProjector(func(b store.Batch) error {
			for _, r := range b.Records {
				if r.Seq == 3 {
					return fmt.Errorf("denylist apply: %w", &pgconn.PgError{Code: "22021"})
				}
			}
			return nil
		})
		applyAll(t, p, newPage(t, 8, none), 8)
		require.Equal(t, []int{8, 4, 2, 4, 2, 1, 1, 2, 3}, s.sizes())
		var quarantined []uint64
		for _, b := range s.batches {
			for _, q := range b.Quarantined {
				quarantined = append(quarantined, q.Seq)
			}
		}
		require.Equal(t, []uint64{3}, quarantined)
	})
	t.Run("when one takes too long", func(t *testing.T) {
		t.Parallel()
		p, s, _ := newTestProjector(func(b store.Batch) error {
			if len(b.Records) > 3 {
				return fmt.Errorf("denylist apply: %w", &pgconn.PgError{Code: "57014"})
			}
			return nil
		})
		applyAll(t, p, newPage(t, 8, none), 5)
		require.Equal(t, []int{8, 4, 2, 4, 2}, s.sizes())
	})
}

// TestPageInPieces cuts pages at random places: the pieces are what decoding
// them alone would give.
func TestPageInPieces(t *testing.T) {
	t.Parallel()
	for range 50 {
		from := store.Checkpoint{Created: at}
		page := newPage(t, 1+rand.IntN(30), func(int) bool { return rand.IntN(3) == 0 })
		for len(page.messages) > 0 {
			n := 1 + rand.IntN(len(page.messages))
			want, got := batch(page.messages[:n], from), page.first(n)
			require.Equal(t, want.Next, got.Next)
			require.ElementsMatch(t, want.Records, got.Records)
			require.ElementsMatch(t, want.Quarantined, got.Quarantined)
			page.drop(n)
		}
		require.Empty(t, page.batch.Records)
		require.Empty(t, page.batch.Quarantined)
	}
}

// TestHostileEdgeDoesNotFillTheLog sends nothing but malformed messages: a line
// a second says how many, and none is left out of the sum.
func TestHostileEdgeDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _, log := newTestProjector(func(store.Batch) error { return nil })
		all := func(int) bool { return true }
		for range 3 {
			applyAll(t, p, newPage(t, 1_000, all), 1)
		}
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "count=1000 seq=1 ")
		require.Contains(t, log.String(), "why=")
		log.Reset()
		p.aside.tell()
		require.Empty(t, log.String())
		<-time.After(asidePause)
		p.aside.tell()
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "count=2000 seq=1 ")
		log.Reset()
		<-time.After(asidePause)
		p.aside.tell()
		require.Empty(t, log.String(), "nothing new")
	})
}
