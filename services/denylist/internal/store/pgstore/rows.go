package pgstore

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// columnsOf are rows of ip_denial_count as the queries take them.
type columnsOf = denylistdb.InsertCountsParams

// newRows are the rows that a batch makes, and those that it adds to, each in
// the order of the key, in which an index takes them best.
func newRows(b *tally.Batch) (made, known columnsOf) {
	type row struct {
		*tally.Row
		ip string
	}
	rows := make([]row, 0, len(b.Addresses))
	for i := range b.Addresses {
		a := &b.Addresses[i]
		for j := range a.Days {
			if a.Days[j].Add > 0 {
				rows = append(rows, row{&a.Days[j], a.IP.String()})
			}
		}
	}
	slices.SortFunc(rows, func(x, y row) int { return cmp.Or(cmp.Compare(x.ip, y.ip), cmp.Compare(x.Day, y.Day)) })
	old := 0
	for _, r := range rows {
		if r.Before > 0 {
			old++
		}
	}
	made, known = room(len(rows)-old), room(old)
	groups := make(map[netip.Prefix]string)
	var buf []byte
	for _, r := range rows {
		p := &made
		if r.Before > 0 {
			p = &known
		}
		group, ok := groups[r.Group]
		if !ok {
			group = r.Group.String()
			groups[r.Group] = group
		}
		buf = appendSamples(buf[:0], r.Samples)
		p.Ips = append(p.Ips, r.ip)
		p.Groups = append(p.Groups, group)
		p.Days = append(p.Days, r.Day.Begin())
		p.Counts = append(p.Counts, r.Add)
		p.FirstSeqs = append(p.FirstSeqs, int64(r.FirstSeq))
		p.LastSeqs = append(p.LastSeqs, int64(r.LastSeq))
		p.Samples = append(p.Samples, string(buf))
	}
	return made, known
}

// room is space for n rows.
func room(n int) columnsOf {
	return columnsOf{
		Ips: make([]string, 0, n), Groups: make([]string, 0, n), Days: make([]time.Time, 0, n), Counts: make([]int64, 0, n),
		FirstSeqs: make([]int64, 0, n), LastSeqs: make([]int64, 0, n), Samples: make([]string, 0, n),
	}
}

// appendSamples appends one line of JSON for each sample.
func appendSamples(buf []byte, samples []wire.DenialSample) []byte {
	for i := range samples {
		s := samples[i]
		s.Path = text(s.Path)
		line, err := json.Marshal(s)
		if err != nil {
			continue // a time beyond year 9999: no sample of it
		}
		if len(buf) > 0 {
			buf = append(buf, '\n')
		}
		buf = append(buf, line...)
	}
	return buf
}

// parseSamples is the inverse. A sample that somebody has edited into nonsense
// is left out.
func parseSamples(lines []string) []wire.DenialSample {
	var samples []wire.DenialSample
	for _, line := range lines {
		var s wire.DenialSample
		if json.Unmarshal([]byte(line), &s) == nil {
			samples = append(samples, s)
		}
	}
	return samples
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
