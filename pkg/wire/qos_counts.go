package wire

import (
	"errors"
	"fmt"
	"strconv"
)

// QoSCount is a number of requests of one key.
type QoSCount struct {
	Key string
	N   int64
}

// QoSCounts are numbers by key. In JSON they are an object, with keys that need no
// escapes; it is read and written by hand, since some hold 50,000 keys every two
// seconds.
type QoSCounts []QoSCount

// MarshalJSON implements json.Marshaler.
func (c QoSCounts) MarshalJSON() ([]byte, error) {
	size := 2
	for i := range c {
		size += len(c[i].Key) + 12
	}
	b := append(make([]byte, 0, size), '{')
	for i := range c {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, c[i].Key...)
		b = append(b, `":`...)
		b = strconv.AppendInt(b, c[i].N, 10)
	}
	return append(b, '}'), nil
}

var errCounts = errors.New("not an object of plain keys and whole numbers")

// UnmarshalJSON implements json.Unmarshaler. It refuses escapes in keys, numbers
// that are not whole, and more than [MaxQoSKeys] keys.
func (c *QoSCounts) UnmarshalJSON(data []byte) error {
	*c = nil
	if string(data) == "null" {
		return nil
	}
	// One string for all keys: they live and die together.
	p := countsParser{data: string(data)}
	if !p.next('{') {
		return errCounts
	}
	if p.next('}') {
		return nil
	}
	counts := make(QoSCounts, 0, min(len(data)/16+1, MaxQoSKeys))
	for {
		key, n, ok := p.entry()
		switch {
		case !ok:
			return errCounts
		case len(counts) == MaxQoSKeys:
			return fmt.Errorf("more than %d keys", MaxQoSKeys)
		}
		counts = append(counts, QoSCount{key, n})
		if p.next('}') {
			*c = counts
			return nil
		}
		if !p.next(',') {
			return errCounts
		}
	}
}

type countsParser struct {
	data string
	at   int
}

// next skips spaces and takes the byte if it comes next.
func (p *countsParser) next(c byte) bool {
	for ; p.at < len(p.data); p.at++ {
		switch p.data[p.at] {
		case ' ', '\t', '\n', '\r':
			continue
		case c:
			p.at++
			return true
		}
		return false
	}
	return false
}

// entry takes a key and its number.
func (p *countsParser) entry() (key string, n int64, ok bool) {
	if !p.next('"') {
		return "", 0, false
	}
	begin := p.at
	for p.at < len(p.data) && p.data[p.at] != '"' {
		if p.data[p.at] == '\\' {
			return "", 0, false
		}
		p.at++
	}
	key = p.data[begin:p.at]
	if !p.next('"') || !p.next(':') {
		return "", 0, false
	}
	p.next(0) // spaces
	const maxDigits = 15
	digits := 0
	for ; p.at < len(p.data) && p.data[p.at] >= '0' && p.data[p.at] <= '9'; p.at++ {
		n = 10*n + int64(p.data[p.at]-'0')
		if digits++; digits > maxDigits {
			return "", 0, false
		}
	}
	return key, n, digits > 0
}

// validate checks each entry.
func (c QoSCounts) validate(name string, check func(string) error) error {
	if len(c) > MaxQoSKeys {
		return fmt.Errorf("%s has %d keys, more than %d", name, len(c), MaxQoSKeys)
	}
	for i := range c {
		if err := check(c[i].Key); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if n := c[i].N; n < 1 || n > maxQoSCount {
			return fmt.Errorf("%s: count %d is not in 1..%d", name, n, int64(maxQoSCount))
		}
	}
	return nil
}
