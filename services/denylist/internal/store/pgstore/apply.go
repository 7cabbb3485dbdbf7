package pgstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// Apply implements [store.Store].
func (s *Store) Apply(ctx context.Context, epoch int64, expected store.Checkpoint, batch store.Batch) (store.Result, error) {
	var out store.Result
	err := s.lead(ctx, "apply", mode{writer: projector}, epoch, func(ctx context.Context, tx pgx.Tx, at store.Checkpoint) error {
		if !at.Same(expected) {
			return fmt.Errorf("%w: it is %d, not %d", store.ErrCheckpoint, at.Seq, expected.Seq)
		}
		if err := batch.Check(at); err != nil {
			return err
		}
		b, err := s.collect(ctx, tx, batch.Records)
		if err != nil {
			return err
		}
		out = b.Result
		out.Changes, err = s.decide(ctx, tx, b)
		if err != nil {
			return err
		}
		if err := s.quarantine(ctx, tx, at, batch.Quarantined); err != nil {
			return err
		}
		return s.queries.MoveCheckpoint(ctx, tx, denylistdb.MoveCheckpointParams{
			Created: at.Created, Seq: int64(batch.Next.Seq),
		})
	})
	if err != nil {
		return store.Result{}, err
	}
	return out, nil
}

// collect sums the records up, without those that have been applied.
func (s *Store) collect(ctx context.Context, tx pgx.Tx, records []store.Record) (*tally.Batch, error) {
	rows, err := s.queries.OutboxPositions(ctx, tx, outboxes(records))
	if err != nil {
		return nil, err
	}
	applied := make(map[string]uint64, len(rows))
	for _, r := range rows {
		applied[r.OutboxID] = uint64(r.LastSeq)
	}
	return tally.Collect(records, func(id string) uint64 { return applied[id] }), nil
}

// outboxes lists the outboxes of the records.
func outboxes(records []store.Record) []string {
	var ids []string
	seen := make(map[string]bool)
	for i := range records {
		if id := records[i].Denied.OutboxID; !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// decide counts the batch, makes and extends blocks, and returns how many.
func (s *Store) decide(ctx context.Context, tx pgx.Tx, b *tally.Batch) (int, error) {
	if len(b.Positions) == 0 {
		return 0, nil
	}
	all := addresses(b)
	if err := s.load(ctx, tx, b, all); err != nil {
		return 0, fmt.Errorf("read counts: %w", err)
	}
	due := b.Decide(s.settings)
	if err := s.count(ctx, tx, all); err != nil {
		return 0, fmt.Errorf("write counts: %w", err)
	}
	if err := s.queries.SavePositions(ctx, tx, newPositions(b)); err != nil {
		return 0, fmt.Errorf("write positions: %w", err)
	}
	changes := 0
	if len(due) > 0 {
		// Before the blocks are read: what they are must not change any more.
		if err := s.queries.LockBlocks(ctx, tx); err != nil {
			return 0, fmt.Errorf("lock blocks: %w", err)
		}
	}
	for len(due) > 0 {
		n := slices.IndexFunc(due, func(d tally.Block) bool { return d.Scope != due[0].Scope })
		if n < 0 {
			n = len(due)
		}
		changed, err := s.extend(ctx, tx, due[0].Scope, due[:n])
		if err != nil {
			return 0, fmt.Errorf("write blocks: %w", err)
		}
		changes += changed
		due = due[n:]
	}
	return changes, nil
}

// count writes the counts of a batch.
func (s *Store) count(ctx context.Context, tx pgx.Tx, all []address) error {
	made, known := newRows(all)
	if len(made) > 0 {
		if _, err := s.queries.InsertCounts(ctx, tx, inserts(made)); err != nil {
			return err
		}
	}
	if len(known) == 0 {
		return nil
	}
	p := columns(known)
	n, err := s.queries.AddToCounts(ctx, tx, denylistdb.AddToCountsParams{
		Ips: p.Ips, Days: p.Days, Counts: p.Counts, LastSeqs: p.LastSeqs, Samples: p.Samples,
	})
	if err == nil && n != int64(len(known)) {
		return errMeanwhile
	}
	return err
}

// load fills in what was counted before.
func (s *Store) load(ctx context.Context, tx pgx.Tx, b *tally.Batch, all []address) error {
	first, last, ok := b.Span()
	if !ok {
		return nil
	}
	days, err := s.queries.DenialDays(ctx, tx, denylistdb.DenialDaysParams{
		Ips: texts(all), First: first.WindowStart(s.settings).Begin(), Last: last.Begin(),
		Counted: first.Begin(), Threshold: int64(s.settings.DailyThreshold),
	})
	if err != nil {
		return err
	}
	if err := setDays(all, days); err != nil {
		return err
	}
	return s.loadRanges(ctx, tx, b.Ranges())
}

func (s *Store) loadRanges(ctx context.Context, tx pgx.Tx, ranges map[tally.RangeDay]*tally.Range) error {
	groups := make([]string, 0, len(ranges))
	days := make([]time.Time, 0, len(ranges))
	counted := make([]*tally.Range, 0, len(ranges))
	for key, r := range ranges {
		groups = append(groups, key.Group.String())
		days = append(days, key.Day.Begin())
		counted = append(counted, r)
	}
	numbers, err := s.queries.RangeAddresses(ctx, tx, denylistdb.RangeAddressesParams{
		Groups: groups, Days: days, Most: int32(min(max(s.settings.RangeIPThreshold, 0), math.MaxInt32-1)) + 1,
	})
	if err != nil {
		return err
	}
	for _, n := range numbers {
		counted[n.Place-1].Addresses = int(n.Addresses)
	}
	return nil
}

// extend makes and extends blocks of one scope, and returns how many.
func (s *Store) extend(ctx context.Context, tx pgx.Tx, scope wire.Scope, due []tally.Block) (int, error) {
	targets := make([]string, len(due))
	for i := range due {
		targets[i] = due[i].Target
	}
	known, err := s.blocksOf(ctx, tx, scope, targets)
	if err != nil {
		return 0, err
	}
	var made, extended []wire.BlockChange
	for i := range due {
		b, exists := known[due[i].Target]
		b.Scope, b.Target = scope, due[i].Target
		switch {
		case !tally.Extend(&b, due[i].Runs, s.settings.BlockFor(scope)):
		case exists:
			extended = append(extended, b)
		default:
			made = append(made, b)
		}
	}
	now, err := s.queries.Now(ctx, tx)
	if err != nil {
		return 0, err
	}
	if _, err := s.writeBlocks(ctx, tx, scope, true, newVersions(made, now)); err != nil {
		return 0, err
	}
	if _, err := s.writeBlocks(ctx, tx, scope, false, newVersions(extended, now)); err != nil {
		return 0, err
	}
	return len(made) + len(extended), nil
}

// quarantine keeps messages that could not be understood.
func (s *Store) quarantine(ctx context.Context, tx pgx.Tx, at store.Checkpoint, messages []store.Quarantined) error {
	if len(messages) == 0 {
		return nil
	}
	p := denylistdb.QuarantineParams{Created: at.Created}
	for _, q := range messages {
		p.Seqs = append(p.Seqs, int64(q.Seq))
		p.Subjects = append(p.Subjects, text(q.Subject))
		p.Whys = append(p.Whys, text(q.Why))
		// Never nil, which would be NULL.
		p.Payloads = append(p.Payloads, append([]byte{}, q.Payload[:min(len(q.Payload), store.MaxPayload)]...))
		p.Ats = append(p.Ats, store.Instant(q.At))
	}
	if err := s.queries.Quarantine(ctx, tx, p); err != nil {
		return fmt.Errorf("quarantine %d messages from %d on: %w", len(messages), messages[0].Seq, err)
	}
	return nil
}
