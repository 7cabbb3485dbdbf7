package clientip

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"
)

// Set is a set of addresses, such as an allowlist or the trusted proxies. It
// does not change and is safe for concurrent use. A nil Set is empty.
type Set struct{ table bart.Lite }

// ParseSet parses a comma-separated list of addresses, CIDR ranges and
// start-end ranges, IPv4 and IPv6. Blanks (spaces, tabs, line ends) around an
// entry are ignored, and so are empty entries.
//
// Host bits of a CIDR range are masked: 192.0.2.9/24 is 192.0.2.0/24. What is
// written as IPv4-mapped IPv6 is IPv4: ::ffff:192.0.2.0/120 is 192.0.2.0/24, and
// ::ffff:0:0/96 is all of IPv4, but no IPv6. A mapped range shorter than /96, a
// prefix that is too long, and a range that is backward or has ends of two
// families are errors. A zone is dropped from an address, and is an error in a
// CIDR range.
//
// All bad entries are reported together (errors.Join), each by its text.
func ParseSet(s string) (*Set, error) {
	set := &Set{}
	var bad []error
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		if err := set.add(entry); err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", clip(entry), err))
		}
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return set, nil
}

// Contains reports whether addr is in the set. The zero Addr never is.
func (s *Set) Contains(addr netip.Addr) bool {
	return s != nil && addr.IsValid() && s.table.Contains(normal(addr))
}

// Overlaps reports whether prefix and the set have an address in common. An
// invalid prefix, and a mapped one shorter than /96, has none.
func (s *Set) Overlaps(prefix netip.Prefix) bool {
	if s == nil || !prefix.IsValid() {
		return false
	}
	prefix, err := unmapPrefix(prefix)
	return err == nil && s.table.OverlapsPrefix(prefix)
}

// Empty reports whether the set has no address.
func (s *Set) Empty() bool { return s == nil || s.table.Size() == 0 }

var (
	errNotAddress = errors.New("not an IP address, CIDR range or start-end range")
	errMapped     = errors.New("an IPv4-mapped range must be /96 or longer")
	errMixed      = errors.New("the ends of the range are of different address families")
	errBackward   = errors.New("the range ends before it starts")
	errLength     = errors.New("the prefix length is not a number within 0-32 (IPv4) or 0-128 (IPv6)")
)

// add inserts one entry.
func (s *Set) add(entry string) error {
	if text, _, ok := strings.Cut(entry, "/"); ok {
		if addr, err := netip.ParseAddr(text); err != nil || addr.Zone() != "" {
			return errNotAddress
		}
		prefix, err := netip.ParsePrefix(entry)
		if err != nil {
			return errLength
		}
		if prefix, err = unmapPrefix(prefix); err != nil {
			return err
		}
		s.table.Insert(prefix)
		return nil
	}
	first, last, isRange := strings.Cut(entry, "-")
	if !isRange {
		last = first
	}
	from, err1 := netip.ParseAddr(strings.TrimSpace(first))
	to, err2 := netip.ParseAddr(strings.TrimSpace(last))
	if err1 != nil || err2 != nil {
		return errNotAddress
	}
	from, to = normal(from), normal(to)
	switch {
	case from.BitLen() != to.BitLen():
		return errMixed
	case to.Less(from):
		return errBackward
	}
	for from.IsValid() && !to.Less(from) {
		prefix := largestPrefix(from, to)
		s.table.Insert(prefix)
		from = lastOf(prefix).Next() // invalid after the last address of all
	}
	return nil
}

// unmapPrefix masks a valid prefix and turns an IPv4-mapped one into IPv4.
func unmapPrefix(prefix netip.Prefix) (netip.Prefix, error) {
	if !prefix.Addr().Is4In6() {
		return prefix.Masked(), nil
	}
	if prefix.Bits() < 96 {
		return netip.Prefix{}, errMapped
	}
	return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96).Masked(), nil
}

// largestPrefix returns the largest prefix that begins with from and ends at or
// before to.
func largestPrefix(from, to netip.Addr) netip.Prefix {
	bits := from.BitLen()
	for bits > 0 {
		wider := netip.PrefixFrom(from, bits-1)
		if wider.Masked().Addr() != from || to.Less(lastOf(wider)) {
			break
		}
		bits--
	}
	return netip.PrefixFrom(from, bits)
}

// lastOf returns the last address of a prefix.
func lastOf(prefix netip.Prefix) netip.Addr {
	raw := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr
}

// clip quotes a text for a message and shortens it.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", s[:most])
}
