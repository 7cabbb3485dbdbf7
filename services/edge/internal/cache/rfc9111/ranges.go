package rfc9111

import (
	"math"
	"strings"
)

// maxRanges is how many ranges of one request are served. More are a way to make a server work, not a way to read.
const maxRanges = 16

// Range is a part of a body, in bytes. Length is at least 1.
type Range struct {
	Start, Length int64
}

// RangeResult says what to do with the Range of a request.
type RangeResult uint8

// Results of [ParseRange].
const (
	// WholeBody: there is no Range that must be honoured; answer with 200.
	WholeBody RangeResult = iota
	// PartialBody: answer with 206 and the ranges.
	PartialBody
	// Unsatisfiable: answer with 416 and "Content-Range: bytes */size".
	Unsatisfiable
)

// ParseRange reads the lines of Range for a body of size bytes (RFC 9110 section 14). Ranges that begin behind the end
// are left out; the others are cut at the end, in the client's order. A field that is malformed or has another unit, more
// than one line, more than 16 ranges, or ranges that overlap, is ignored: the answer is the whole body.
func ParseRange(lines []string, size int64) ([]Range, RangeResult) {
	if len(lines) != 1 || size < 0 {
		return nil, WholeBody
	}
	unit, set, ok := strings.Cut(lines[0], "=")
	if !ok || !strings.EqualFold(trimSpace(unit), "bytes") {
		return nil, WholeBody
	}
	var ranges []Range
	specs := 0
	for spec := range strings.SplitSeq(set, ",") {
		if spec = trimSpace(spec); spec == "" {
			continue
		}
		if specs++; specs > maxRanges {
			return nil, WholeBody
		}
		part, ok := parseSpec(spec, size)
		if !ok || part.Length > 0 && overlaps(ranges, part) {
			return nil, WholeBody
		}
		if part.Length > 0 {
			ranges = append(ranges, part)
		}
	}
	switch {
	case specs == 0:
		return nil, WholeBody
	case len(ranges) == 0:
		return nil, Unsatisfiable
	}
	return ranges, PartialBody
}

// parseSpec reads one range; its Length is 0 if it lies outside of the body.
func parseSpec(spec string, size int64) (Range, bool) {
	first, last, ok := strings.Cut(spec, "-")
	if !ok {
		return Range{}, false
	}
	if first == "" {
		n, ok := position(last)
		n = min(n, size)
		return Range{Start: size - n, Length: n}, ok
	}
	start, ok := position(first)
	if !ok {
		return Range{}, false
	}
	end := int64(math.MaxInt64)
	if last != "" {
		if end, ok = position(last); !ok || end < start {
			return Range{}, false
		}
	}
	if start >= size {
		return Range{}, true
	}
	return Range{Start: start, Length: min(end, size-1) - start + 1}, true
}

// position reads a number of bytes; what is too large for an int64 is its maximum.
func position(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxInt64-9)/10 {
			n = math.MaxInt64
			continue
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

func overlaps(ranges []Range, r Range) bool {
	for _, other := range ranges {
		if r.Start < other.Start+other.Length && other.Start < r.Start+r.Length {
			return true
		}
	}
	return false
}
