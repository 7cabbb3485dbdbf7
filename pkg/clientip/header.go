package clientip

import (
	"net/netip"
	"strings"
)

// fromList finds the client in the lines of an X-Forwarded-For. The zero Addr
// means that there is none.
func (r *Resolver) fromList(lines []string) netip.Addr {
	w := walk{trusted: r.trusted}
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var entry string
			entry, rest, more = lastEntry(rest)
			if entry == "" {
				if w.skip() {
					return w.client
				}
				continue
			}
			if addr, ok := parseNode(entry); w.step(addr, ok) {
				return w.client
			}
		}
	}
	return w.client
}

// fromForwarded finds the client in the lines of a Forwarded (RFC 7239).
func (r *Resolver) fromForwarded(lines []string) netip.Addr {
	w := walk{trusted: r.trusted}
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var element string
			var ok bool
			element, rest, more, ok = lastElement(rest)
			if element == "" && ok {
				if w.skip() {
					return w.client
				}
				continue
			}
			var addr netip.Addr
			if ok {
				addr, ok = forOf(element)
			}
			if w.step(addr, ok) {
				return w.client
			}
		}
	}
	return w.client
}

// fromSingle takes the last entry that is not empty.
func (r *Resolver) fromSingle(lines []string) netip.Addr {
	w := walk{}
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var entry string
			entry, rest, more = lastEntry(rest)
			if entry != "" {
				addr, _ := parseNode(entry)
				return addr
			}
			if w.skip() {
				return netip.Addr{}
			}
		}
	}
	return netip.Addr{}
}

// walk is the way from the right of a list to the client.
type walk struct {
	trusted *Set
	client  netip.Addr // the last address seen
	entries int
}

// step takes the next entry and reports whether the walk ends with it.
func (w *walk) step(addr netip.Addr, ok bool) bool {
	if !ok {
		return true
	}
	w.client = addr
	return !w.trusted.Contains(addr) || w.skip()
}

// skip counts an entry and reports whether there were too many.
func (w *walk) skip() bool {
	w.entries++
	return w.entries >= MaxEntries
}

// lastEntry takes the last entry off a comma-separated list, without the blanks
// around it. More is false if it was the first.
func lastEntry(list string) (entry, rest string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return trimBlanks(list), "", false
	}
	return trimBlanks(list[i+1:]), list[:i], true
}

// lastElement takes the last element off the value of a Forwarded line. A comma
// within a quoted string does not separate. It is not ok if a quoted string has
// no beginning.
func lastElement(list string) (element, rest string, more, ok bool) {
	for i := len(list) - 1; i >= 0; i-- {
		switch list[i] {
		case ',':
			return trimBlanks(list[i+1:]), list[:i], true, true
		case '"':
			if i = openingQuote(list[:i]); i < 0 {
				return "", "", false, false
			}
		}
	}
	return trimBlanks(list), "", false, true
}

// openingQuote returns the place of the last quote that is not escaped, or -1.
func openingQuote(s string) int {
	for {
		i := strings.LastIndexByte(s, '"')
		if i <= 0 || s[i-1] != '\\' {
			return i
		}
		// Escaped if the number of backslashes before it is odd.
		head := strings.TrimRight(s[:i], `\`)
		if (i-len(head))%2 == 0 {
			return i
		}
		s = head
	}
}

// forOf returns the address of the one "for" parameter of an element.
func forOf(element string) (addr netip.Addr, ok bool) {
	found := false
	for more := true; more; {
		var name, value string
		if name, value, element, more, ok = nextPair(element); !ok {
			return netip.Addr{}, false
		}
		if !strings.EqualFold(name, "for") {
			continue
		}
		if found { // a parameter may stand only once (RFC 7239 §4)
			return netip.Addr{}, false
		}
		found = true
		if addr, ok = parseNode(value); !ok {
			return netip.Addr{}, false
		}
	}
	return addr, found
}

// nextPair takes the first name=value off an element, without the quotes of the
// value. More is false if it was the last.
func nextPair(element string) (name, value, rest string, more, ok bool) {
	name, rest, ok = strings.Cut(element, "=")
	name = trimBlanks(name)
	if !ok || name == "" || strings.ContainsAny(name, "\"; \t") {
		return "", "", "", false, false
	}
	if rest == "" || rest[0] != '"' {
		value, rest, more = strings.Cut(rest, ";")
		return name, trimBlanks(value), rest, more, strings.IndexByte(value, '"') < 0
	}
	end := 1
	for end < len(rest) && rest[end] != '"' {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		return "", "", "", false, false
	}
	value, rest = rest[1:end], trimBlanks(rest[end+1:])
	switch {
	case rest == "":
		return name, value, "", false, true
	case rest[0] == ';':
		return name, value, rest[1:], true, true
	default:
		return "", "", "", false, false
	}
}

// trimBlanks removes blanks and tabs from both ends.
func trimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
