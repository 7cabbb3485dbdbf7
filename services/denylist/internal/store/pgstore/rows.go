package pgstore

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// address is an address of a batch with its text.
type address struct {
	*tally.Address
	ip string
}

// addresses are those of a batch in the order of the key, in which an index
// finds and takes them best.
func addresses(b *tally.Batch) []address {
	all := make([]address, len(b.Addresses))
	for i := range b.Addresses {
		all[i] = address{&b.Addresses[i], b.Addresses[i].IP.String()}
	}
	slices.SortFunc(all, func(x, y address) int { return strings.Compare(x.ip, y.ip) })
	return all
}

// texts are the addresses as they stand in the tables.
func texts(all []address) []string {
	ips := make([]string, len(all))
	for i := range all {
		ips[i] = all[i].ip
	}
	return ips
}

// setDays notes what was counted before.
func setDays(all []address, days []denylistdb.DenialDaysRow) error {
	groups := make(map[string]netip.Prefix)
	for _, d := range days {
		a := all[d.Place-1]
		group, ok := groups[d.IpGroup]
		if !ok {
			var err error
			if group, err = wire.ParseTarget(wire.ScopeRange, d.IpGroup); err != nil {
				return fmt.Errorf("ip_group of %s: %w", a.ip, err)
			}
			groups[d.IpGroup] = group
		}
		a.Days = append(a.Days, tally.Row{Day: tally.DayOf(d.Day), Group: group, Before: d.Count})
	}
	return nil
}

// row is a count with the text of its address.
type row struct {
	*tally.Row
	ip string
}

// newRows are the rows that a batch makes, and those that it adds to.
func newRows(all []address) (made, known []row) {
	made = make([]row, 0, len(all))
	for _, a := range all {
		for i := range a.Days {
			switch r := (row{&a.Days[i], a.ip}); {
			case r.Add == 0:
			case r.Before == 0:
				made = append(made, r)
			default:
				known = append(known, r)
			}
		}
	}
	return made, known
}

// rangeTexts keeps the text of each range.
type rangeTexts map[netip.Prefix]string

func (t rangeTexts) of(p netip.Prefix) string {
	text, ok := t[p]
	if !ok {
		text = p.String()
		t[p] = text
	}
	return text
}

// inserts are rows as they are copied into the table.
func inserts(rows []row) []denylistdb.InsertCountsParams {
	out := make([]denylistdb.InsertCountsParams, len(rows))
	groups := make(rangeTexts)
	for i, r := range rows {
		out[i] = denylistdb.InsertCountsParams{
			Ip: r.ip, IpGroup: groups.of(r.Group), Day: r.Day.Begin(), Count: r.Add,
			FirstSeq: int64(r.FirstSeq), LastSeq: int64(r.LastSeq), Samples: sampleLines(r.Samples),
		}
	}
	return out
}

// columns are rows as the other queries take them.
func columns(rows []row) denylistdb.RebuildCountDenialsParams {
	n := len(rows)
	p := denylistdb.RebuildCountDenialsParams{
		Ips: make([]string, n), Groups: make([]string, n), Days: make([]time.Time, n), Counts: make([]int64, n),
		FirstSeqs: make([]int64, n), LastSeqs: make([]int64, n), Samples: make([]string, n),
	}
	groups := make(rangeTexts)
	for i, r := range rows {
		p.Ips[i], p.Groups[i], p.Days[i], p.Counts[i] = r.ip, groups.of(r.Group), r.Day.Begin(), r.Add
		p.FirstSeqs[i], p.LastSeqs[i] = int64(r.FirstSeq), int64(r.LastSeq)
		p.Samples[i] = strings.Join(sampleLines(r.Samples), "\n")
	}
	return p
}

// newPositions are the positions that a batch moves.
func newPositions(b *tally.Batch) denylistdb.SavePositionsParams {
	var p denylistdb.SavePositionsParams
	for id, at := range b.Positions {
		p.Ids = append(p.Ids, id)
		p.Seqs = append(p.Seqs, int64(at.Seq))
		p.Seens = append(p.Seens, at.Seen)
	}
	return p
}

// text makes a string fit for Postgres, which keeps no zero byte and only
// UTF-8.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
