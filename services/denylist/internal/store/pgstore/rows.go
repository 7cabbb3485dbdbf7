package pgstore

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// newRows are the rows that a batch adds to ip_denial_count, in the order of
// its key, in which an index takes them best.
func newRows(b *tally.Batch) denylistdb.CountDenialsParams {
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
	n := len(rows)
	p := denylistdb.CountDenialsParams{
		Ips: make([]string, n), Groups: make([]string, n), Days: make([]time.Time, n), Counts: make([]int64, n),
		FirstSeqs: make([]int64, n), LastSeqs: make([]int64, n), Samples: make([]string, n),
	}
	var buf []byte
	for i, r := range rows {
		p.Ips[i], p.Groups[i], p.Days[i], p.Counts[i] = r.ip, r.Group.String(), r.Day.Begin(), r.Add
		p.FirstSeqs[i], p.LastSeqs[i] = int64(r.FirstSeq), int64(r.LastSeq)
		buf = appendSamples(buf[:0], r.Samples)
		p.Samples[i] = string(buf)
	}
	return p
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
