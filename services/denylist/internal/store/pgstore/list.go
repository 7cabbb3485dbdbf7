package pgstore

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
)

// Blocks implements [store.Store].
func (s *Store) Blocks(ctx context.Context, l store.Listing) ([]wire.BlockChange, error) {
	var page []wire.BlockChange
	p := denylistdb.PageIPBlocksParams{After: text(l.After), InForceAt: l.InForceAt, Most: int32(l.Limit)}
	var err error
	if l.Scope == wire.ScopeIP {
		var rows []denylistdb.PageIPBlocksRow
		rows, err = s.queries.PageIPBlocks(ctx, s.pool, p)
		for _, r := range rows {
			page = append(page, blockRow(r).change(l.Scope))
		}
	} else {
		var rows []denylistdb.PageRangeBlocksRow
		rows, err = s.queries.PageRangeBlocks(ctx, s.pool, denylistdb.PageRangeBlocksParams(p))
		for _, r := range rows {
			page = append(page, blockRow(r).change(l.Scope))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("denylist blocks: %w", err)
	}
	return page, nil
}

// Holding implements [store.Store].
func (s *Store) Holding(ctx context.Context, p netip.Prefix) ([]wire.BlockChange, error) {
	var held []wire.BlockChange
	err := s.tx(ctx, "holding", mode{}, func(ctx context.Context, tx pgx.Tx) (err error) {
		held, err = s.holding(ctx, tx, p)
		return err
	})
	return held, err
}

func (s *Store) holding(ctx context.Context, tx pgx.Tx, p netip.Prefix) ([]wire.BlockChange, error) {
	now, err := s.queries.Now(ctx, tx)
	if err != nil {
		return nil, err
	}
	var held []wire.BlockChange
	add := func(scope wire.Scope, targets ...string) error {
		known, err := s.blocksOf(ctx, tx, scope, targets)
		for _, target := range targets {
			if b, ok := known[target]; ok && b.BlockedUntil.After(now) {
				held = append(held, b)
			}
		}
		return err
	}
	if p.IsSingleIP() {
		if err := add(wire.ScopeIP, p.Addr().String()); err != nil {
			return nil, err
		}
	}
	covering := make([]string, 0, p.Bits()+1)
	for bits := p.Bits(); bits >= 0; bits-- {
		covering = append(covering, netip.PrefixFrom(p.Addr(), bits).Masked().String())
	}
	err = add(wire.ScopeRange, covering...)
	return held, err
}

// Explain implements [store.Store].
func (s *Store) Explain(ctx context.Context, ip netip.Addr) (store.Explanation, error) {
	var out store.Explanation
	ip = ip.Unmap()
	err := s.tx(ctx, "explain", mode{}, func(ctx context.Context, tx pgx.Tx) (err error) {
		out = store.Explanation{}
		if out.Blocks, err = s.holding(ctx, tx, netip.PrefixFrom(ip, ip.BitLen())); err != nil {
			return err
		}
		own, err := s.queries.DaysOfIP(ctx, tx, denylistdb.DaysOfIPParams{Ip: ip.String(), Most: store.MaxDays})
		if err != nil {
			return err
		}
		for _, row := range own {
			if err := addDay(&out, row); err != nil {
				return err
			}
		}
		room := len(out.Days) + store.MaxRangeDays
		for _, b := range out.Blocks {
			if b.Scope != wire.ScopeRange || len(out.Days) >= room {
				continue
			}
			others, err := s.queries.DaysOfRange(ctx, tx, denylistdb.DaysOfRangeParams{
				Samples: store.MaxRangeSamples, IpGroup: b.Target, But: ip.String(),
				First: midnight(b.Since), Last: midnight(b.BlockedUntil), Most: int32(room - len(out.Days)),
			})
			if err != nil {
				return err
			}
			for _, row := range others {
				if err := addDay(&out, denylistdb.IpDenialCount(row)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return out, err
}

func addDay(out *store.Explanation, row denylistdb.IpDenialCount) error {
	ip, err := netip.ParseAddr(row.Ip)
	if err != nil {
		return fmt.Errorf("ip_denial_count: %w", err)
	}
	out.Days = append(out.Days, wire.DenialDay{
		IP: ip, Group: row.IpGroup, Day: row.Day.Format(time.DateOnly), Count: row.Count,
		FirstSeq: uint64(row.FirstSeq), LastSeq: uint64(row.LastSeq), Samples: parseSamples(row.Samples),
	})
	return nil
}

func midnight(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// Totals implements [store.Store].
func (s *Store) Totals(ctx context.Context, at time.Time) (store.Totals, error) {
	var out store.Totals
	// One snapshot, so that the numbers are those of the version.
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		n, err := s.queries.CountBlocks(ctx, tx, at)
		if err != nil {
			return err
		}
		v, err := s.queries.Newest(ctx, tx)
		out = store.Totals{IPs: int(n.Ips), Ranges: int(n.Ranges), Version: v.Newest, Published: v.Published}
		return err
	})
	if err != nil {
		return store.Totals{}, fmt.Errorf("denylist totals: %w", err)
	}
	return out, nil
}
