package rfc9111

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestF08_Ranges pins what is served of a stored body of 12,345 bytes, among others (RFC 9110 section 14).
func TestF08_Ranges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		field  string
		size   int64
		result RangeResult
		ranges []Range
	}{
		{"bytes=0-499", 12345, PartialBody, []Range{{0, 500}}},
		{"bytes=100-199", 12345, PartialBody, []Range{{100, 100}}},
		{"bytes=-10", 12345, PartialBody, []Range{{12335, 10}}},
		{"bytes=-99999", 12345, PartialBody, []Range{{0, 12345}}},
		{"bytes=12344-", 12345, PartialBody, []Range{{12344, 1}}},
		{"bytes=99999-", 12345, Unsatisfiable, nil},
		{"bytes=12345-", 12345, Unsatisfiable, nil},
		{"bytes=-0", 12345, Unsatisfiable, nil},
		{"bytes=0-", 0, Unsatisfiable, nil},
		{"bytes=-1", 0, Unsatisfiable, nil},
		{"bytes=0-0,-1", 12345, PartialBody, []Range{{0, 1}, {12344, 1}}},
		{"bytes=500-, 0-99", 12345, PartialBody, []Range{{500, 11845}, {0, 100}}},
		{"bytes=0-9, 99999-", 12345, PartialBody, []Range{{0, 10}}},
		{"bytes=0-99999999999999999999", 12345, PartialBody, []Range{{0, 12345}}},
		{"bytes=99999999999999999999-", 12345, Unsatisfiable, nil},
		{"bytes=-99999999999999999999", 12345, PartialBody, []Range{{0, 12345}}},
		{"Bytes = 0-9 , ,", 12345, PartialBody, []Range{{0, 10}}},
		{"bytes=0-9,5-14", 12345, WholeBody, nil},
		{"bytes=0-9,-12340", 12345, WholeBody, nil},
		{"bytes=9-0", 12345, WholeBody, nil},
		{"bytes=1-x", 12345, WholeBody, nil},
		{"bytes=+1-2", 12345, WholeBody, nil},
		{"bytes=1", 12345, WholeBody, nil},
		{"bytes=-", 12345, WholeBody, nil},
		{"bytes=", 12345, WholeBody, nil},
		{"bytes=,", 12345, WholeBody, nil},
		{"bytes", 12345, WholeBody, nil},
		{"", 12345, WholeBody, nil},
		{"pages=0-9", 12345, WholeBody, nil},
		{"bytes=0-9, 1-x", 12345, WholeBody, nil},
		{"bytes=" + manyRanges(maxRanges), 12345, PartialBody, everyOther(maxRanges)},
		{"bytes=" + manyRanges(maxRanges+1), 12345, WholeBody, nil},
	} {
		ranges, result := ParseRange([]string{tt.field}, tt.size)
		require.Equal(t, tt.result, result, tt.field)
		require.Equal(t, tt.ranges, ranges, tt.field)
	}
	_, result := ParseRange([]string{"bytes=0-1", "bytes=3-4"}, 10)
	require.Equal(t, WholeBody, result)
	_, result = ParseRange(nil, 10)
	require.Equal(t, WholeBody, result)
}

func manyRanges(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d-%d,", 2*i, 2*i)
	}
	return b.String()
}

func everyOther(n int) []Range {
	var ranges []Range
	for i := range n {
		ranges = append(ranges, Range{Start: int64(2 * i), Length: 1})
	}
	return ranges
}

// FuzzParseRange compares with an oracle that marks the bytes of a small body.
func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"bytes=0-499", "bytes=-10", "bytes=5-", "bytes=0-0,-1", "bytes=9-0", "bytes=,1-2", "x=1-2", "bytes=99999999999999999999-"} {
		f.Add(seed, uint8(20))
	}
	f.Fuzz(func(t *testing.T, field string, size uint8) {
		ranges, result := ParseRange([]string{field}, int64(size))
		want, wantResult := slowRanges(field, int(size))
		require.Equal(t, wantResult, result)
		require.Equal(t, want, ranges)
	})
}

// slowRanges reads the field with the help of the standard library, and finds overlaps byte by byte.
func slowRanges(field string, size int) ([]Range, RangeResult) {
	unit, set, ok := strings.Cut(field, "=")
	if !ok || strings.ToLower(strings.Trim(unit, " \t")) != "bytes" {
		return nil, WholeBody
	}
	var used [256]bool
	var ranges []Range
	specs := 0
	for _, spec := range strings.Split(set, ",") {
		spec = strings.Trim(spec, " \t")
		if spec == "" {
			continue
		}
		specs++
		first, last, ok := strings.Cut(spec, "-")
		if !ok || specs > maxRanges {
			return nil, WholeBody
		}
		a, aErr := slowNumber(first)
		b, bErr := slowNumber(last)
		switch {
		case first == "" && !bErr:
			a, b = max(int64(size)-b, 0), int64(size)-1
		case last == "" && !aErr:
			b = math.MaxInt64
		case aErr || bErr || b < a:
			return nil, WholeBody
		}
		n := 0
		for i := range size {
			if int64(i) < a || int64(i) > b {
				continue
			}
			if used[i] {
				return nil, WholeBody
			}
			used[i] = true
			n++
		}
		if n > 0 {
			ranges = append(ranges, Range{Start: a, Length: int64(n)})
		}
	}
	switch {
	case specs == 0:
		return nil, WholeBody
	case ranges == nil:
		return nil, Unsatisfiable
	}
	return ranges, PartialBody
}

// slowNumber reads a number; too large ones are the largest.
func slowNumber(s string) (n int64, bad bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, true
	}
	n, _ = strconv.ParseInt(s, 10, 64)
	return n, false
}
