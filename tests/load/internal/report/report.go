// Package report turns measurements into one table.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Row is one line of the table. All fields are texts for a reader, except Met.
type Row struct {
	What     string
	Measured string
	Against  string
	Ratio    string
	Reach    string
	Met      bool
}

// Write writes the rows as a Markdown table.
func Write(w io.Writer, rows []Row) error {
	var b strings.Builder
	b.WriteString("| what | measured | against (same run) | ratio | to reach | met |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		met := "no"
		if r.Met {
			met = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.What, r.Measured, r.Against, r.Ratio, r.Reach, met)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Pairs are measurements of two things that were taken in turn, so that what
// disturbs the machine disturbs both.
type Pairs struct {
	measured, against []float64
}

// Add takes one measurement of each.
func (p *Pairs) Add(measured, against float64) {
	p.measured = append(p.measured, measured)
	p.against = append(p.against, against)
}

// Measured and Against return the medians of the two.
func (p *Pairs) Measured() float64 { return Percentile(p.measured, 50) }

// Against returns the median of the second thing.
func (p *Pairs) Against() float64 { return Percentile(p.against, 50) }

// Ratio returns the median of the ratios of the single pairs.
func (p *Pairs) Ratio() float64 {
	ratios := make([]float64, len(p.measured))
	for i := range ratios {
		ratios[i] = p.measured[i] / p.against[i]
	}
	return Percentile(ratios, 50)
}

// Percentile returns the value at or below which so many per cent of the
// values are: the nearest rank, and for 50 of an even number the mean of the
// two in the middle. There must be a value.
func Percentile[T float64 | time.Duration](values []T, percent int) T {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if percent == 50 && n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	rank := (n*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}
