package rfc9111

import (
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"time"
)

// codecVersion is the first byte of an encoded response. Another layout or another meaning of its parts gets another
// one, so that an older cache is discarded and not misread.
const codecVersion = 2

var errEncoding = errors.New("rfc9111: not an encoded response")

// Flags of the encoding.
const (
	flagStrict = 1 << iota
	flagShared
	flagModified
	flagsKnown = 1<<iota - 1
)

// Append appends the encoded response to b and returns the longer slice. Equal responses have equal encodings.
func (res *Response) Append(b []byte) []byte {
	b = append(b, codecVersion)
	b = binary.AppendUvarint(b, uint64(res.Status))
	b = appendText(b, res.URL)
	b = appendNames(b, res.vary)
	if res.IsIndex() {
		b = binary.BigEndian.AppendUint64(b, res.epoch)
		return binary.AppendVarint(b, res.end.Unix())
	}
	var flags byte
	if res.strict {
		flags |= flagStrict
	}
	if res.shared {
		flags |= flagShared
	}
	if !res.modified.IsZero() {
		flags |= flagModified
	}
	b = append(b, flags)
	b = binary.AppendVarint(b, res.received.UnixNano())
	if !res.modified.IsZero() {
		b = binary.AppendVarint(b, res.modified.Unix())
	}
	for _, d := range []time.Duration{res.age, res.lifetime, res.whileRevalidate, res.ifError} {
		b = binary.AppendUvarint(b, uint64(d))
	}
	b = binary.AppendUvarint(b, uint64(len(res.Header)))
	var space [32]string // more than most responses have fields
	names := space[:0]
	for name := range res.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b = appendText(b, name)
		b = appendNames(b, res.Header[name])
	}
	return b
}

func appendNames(b []byte, names []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = appendText(b, name)
	}
	return b
}

// Decode reads what [Response.Append] wrote, and nothing else: any other input is an error. The result does not refer to
// b.
func Decode(b []byte) (*Response, error) {
	d := decoder{text: string(b)}
	res := d.response()
	if d.failed || d.text != "" {
		return nil, errEncoding
	}
	return res, nil
}

// valuesAtOnce is how many values get their room in one allocation: more than most responses have fields.
const valuesAtOnce = 24

// decoder reads from text. After a failure all its values are zero.
type decoder struct {
	text   string
	failed bool
	values []string // room for the values of fields, shared by all of them
}

func (d *decoder) response() *Response {
	if d.byte() != codecVersion {
		d.failed = true
		return nil
	}
	res := &Response{Status: int(d.limited(999)), URL: d.string(), vary: d.strings(maxVaryNames)}
	if res.IsIndex() {
		res.epoch, res.end = d.uint64(), time.Unix(d.varint(), 0).UTC()
		return res
	}
	flags := d.byte()
	d.failed = d.failed || flags > flagsKnown || res.Status < 200
	res.strict, res.shared = flags&flagStrict != 0, flags&flagShared != 0
	res.received = time.Unix(0, d.varint())
	if flags&flagModified != 0 {
		res.modified = time.Unix(d.varint(), 0).UTC()
	}
	for _, value := range []*time.Duration{&res.age, &res.lifetime, &res.whileRevalidate, &res.ifError} {
		*value = time.Duration(d.limited(uint64(maxDelta * time.Second)))
	}
	res.Header = d.header()
	if !res.modified.IsZero() && len(res.Header["Last-Modified"]) != 1 {
		d.failed = true
	}
	return res
}

func (d *decoder) header() http.Header {
	n := d.limited(maxFields + 1) // Date may have been added
	h := make(http.Header, n)
	last := ""
	for range n {
		name := d.string()
		values := d.strings(maxFields)
		if d.failed || name <= last || len(values) == 0 {
			d.failed = true
			return nil
		}
		h[name], last = values, name
	}
	return h
}

func (d *decoder) strings(limit uint64) []string {
	n := d.limited(limit)
	if n == 0 || n > uint64(len(d.text)) {
		d.failed = d.failed || n > 0
		return nil
	}
	if uint64(len(d.values)) < n {
		d.values = make([]string, max(n, valuesAtOnce))
	}
	values := d.values[:n:n]
	d.values = d.values[n:]
	for i := range values {
		values[i] = d.string()
	}
	return values
}

func (d *decoder) string() string {
	n := d.limited(uint64(len(d.text)))
	if n > uint64(len(d.text)) { // the length itself took room
		d.failed = true
		return ""
	}
	s := d.text[:n]
	d.text = d.text[n:]
	return s
}

func (d *decoder) byte() byte {
	if d.failed || d.text == "" {
		d.failed = true
		return 0
	}
	c := d.text[0]
	d.text = d.text[1:]
	return c
}

func (d *decoder) uint64() uint64 {
	var n uint64
	for range 8 {
		n = n<<8 | uint64(d.byte())
	}
	return n
}

// limited reads a number of at most limit, in its shortest form.
func (d *decoder) limited(limit uint64) uint64 {
	n := d.uvarint()
	if n > limit {
		d.failed = true
	}
	if d.failed {
		return 0
	}
	return n
}

func (d *decoder) uvarint() uint64 {
	var n uint64
	for shift := 0; shift < 64; shift += 7 {
		c := d.byte()
		if d.failed {
			return 0
		}
		n |= uint64(c&0x7f) << shift
		if c >= 0x80 {
			continue
		}
		if c == 0 && shift > 0 || shift == 63 && c > 1 {
			break
		}
		return n
	}
	d.failed = true
	return 0
}

func (d *decoder) varint() int64 {
	n := d.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}
