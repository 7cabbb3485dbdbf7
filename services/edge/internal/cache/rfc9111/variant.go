package rfc9111

import (
	"cmp"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"time"
)

// NewIndex returns an index of variants: what is stored under the key of a resource whose responses vary. names are
// those of [Response.Vary]; more are never harmful, as they only tell more variants apart. epoch must be another one for
// every index that is made anew: with an index that is deleted, all its variants become unreachable for good.
func NewIndex(url string, names []string, epoch uint64) *Response {
	return &Response{URL: url, vary: slices.Clone(names), epoch: epoch, end: time.Unix(0, 0).UTC()}
}

// Lasting returns the same index with another end, in whole seconds: when it is useless, see [Response.UselessAfter].
// That must be after the ends of its variants. A new index ends in 1970.
func (res *Response) Lasting(end time.Time) *Response {
	index := *res
	index.end = end.Truncate(time.Second).UTC()
	return &index
}

// IsIndex reports whether res is an index of variants and not a response.
func (res *Response) IsIndex() bool { return res.Status == 0 }

// Vary returns the names of the request fields that select a response, sorted, in canonical form; empty if none do. They
// must not be changed.
func (res *Response) Vary() []string { return res.vary }

// Extend returns an index that covers the names of another response as well: the index itself if it does already, or a
// new one with the same epoch and end. It reports false if there would be more than 16 names; then the other response cannot be
// stored beside the variants.
func (res *Response) Extend(other *Response) (*Response, bool) {
	names, ok := tidyNames(slices.Concat(res.vary, other.vary))
	if !ok {
		return res, false
	}
	if len(names) == len(res.vary) {
		return res, true
	}
	return NewIndex(res.URL, names, res.epoch).Lasting(res.end), true
}

// Variant returns the key of the variant that a request with the fields h selects (RFC 9111 section 4.1) from an index.
// key is that of the resource. Values are compared after what does not change their meaning has been taken away: several lines are
// joined, and space around commas dropped; of Accept-Encoding and Accept-Language, also case, order and ";q=1". A
// missing field and an empty one are told apart.
func (res *Response) Variant(key Key, h http.Header) Key {
	var space [512]byte
	b := append(space[:0], "ccnq v"...)
	b = append(b, key[:]...)
	b = binary.BigEndian.AppendUint64(b, res.epoch)
	for _, name := range res.vary {
		b = appendText(b, name)
		b = appendValues(b, name, h[name])
	}
	return sum(b)
}

// How values are normalised; part of what is hashed.
const (
	missing = iota
	aList
	aSet
)

// maxPreferences is how many elements of a list of preferences are sorted. No client sends more, unless it wants to keep
// the cache busy.
const maxPreferences = 32

// appendValues appends the normalised values of a field.
func appendValues(b []byte, name string, lines []string) []byte {
	switch {
	case lines == nil:
		return append(b, missing)
	case name == "Accept-Encoding", name == "Accept-Language":
		var space [maxPreferences]string
		if set := preferences(space[:0], lines); len(set) <= maxPreferences {
			return appendSet(append(b, aSet), set)
		}
	}
	b = append(b, aList)
	for element := range listed(lines) {
		b = appendText(b, element)
	}
	return append(b, 0) // no element is empty, so this is the end
}

// listed iterates over the elements of a list, without space around them and without empty ones.
func listed(lines []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for line != "" {
				var element string
				element, line = cutElement(line)
				if element = trimSpace(element); element != "" && !yield(element) {
					return
				}
			}
		}
	}
}

// preferences appends the elements of a list of preferences to set, but no more than one too many.
func preferences(set, lines []string) []string {
	for element := range listed(lines) {
		if element = trimWeight(element); element == "" {
			continue
		}
		if set = append(set, element); len(set) > maxPreferences {
			break
		}
	}
	return set
}

// appendSet appends a list of preferences as a set: the order of elements has no meaning (RFC 9110 sections 12.5.3 and
// 12.5.4), and neither has case.
func appendSet(b []byte, set []string) []byte {
	slices.SortFunc(set, compareFold)
	for i, element := range set {
		if i > 0 && compareFold(element, set[i-1]) == 0 {
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(element)-spaces(element)))
		for j := range len(element) {
			if c := element[j]; !isSpace(c) {
				b = append(b, lower(c))
			}
		}
	}
	return append(b, 0)
}

// trimWeight removes a weight of 1, which is the default.
func trimWeight(element string) string {
	name, weight, ok := strings.Cut(element, ";")
	weight = trimSpace(weight)
	if !ok || len(weight) < 3 || lower(weight[0]) != 'q' || weight[1] != '=' || weight[2] != '1' {
		return element
	}
	if rest := strings.TrimPrefix(weight[3:], "."); strings.Trim(rest, "0") != "" {
		return element
	}
	return trimSpace(name)
}

// compareFold orders texts without regard to case and space.
func compareFold(a, b string) int {
	i, j := 0, 0
	for {
		for i < len(a) && isSpace(a[i]) {
			i++
		}
		for j < len(b) && isSpace(b[j]) {
			j++
		}
		if i == len(a) || j == len(b) {
			return cmp.Compare(len(a)-i, len(b)-j)
		}
		if c := cmp.Compare(lower(a[i]), lower(b[j])); c != 0 {
			return c
		}
		i, j = i+1, j+1
	}
}

func spaces(s string) int { return strings.Count(s, " ") + strings.Count(s, "\t") }
