package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"
)

const (
	filePage = 4096
	// elementBytes is what a key and its value take in a page beside the value:
	// the element's header and the key.
	elementBytes = 16 + 8
	pageHeader   = 16
	crcBytes     = 4
	// pairPages are filled by two chunks with all that belongs to them: the
	// library puts no fewer than two values into a run of pages.
	pairPages = 16
	// chunkBytes of a body are one value.
	chunkBytes = (pairPages*filePage-pageHeader)/2 - elementBytes - crcBytes

	recordVersion = 1
	// fixedBytes precede the name in a record: version, key, first chunk, size,
	// until, generation, length of head and name, checksum of all this and the
	// name.
	fixedBytes = 1 + 16 + 8 + 4 + 4 + 4 + 4 + 2 + crcBytes
	// maxHeadBytes bounds an encoded head.
	maxHeadBytes = 256 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTooLarge means that a head is too large to be stored.
var errTooLarge = errors.New("the head is too large")

// errRecord means that a record or a chunk is not what was written.
var errRecord = errors.New("it does not match its checksum")

// record is an entry as it is on disk. Bodies that fit are in it, so that a
// small entry is one read.
type record struct {
	key        Key
	base       uint64 // of the first chunk; 0 means that the body is in the record
	size       uint32 // of the whole body
	until      uint32
	gen        uint32
	name, head []byte
	body       []byte
}

// sum is the checksum of the parts of what is stored under id. It covers id,
// so that a value found in another's place does not pass.
func sum(id uint64, parts ...[]byte) uint32 {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], id)
	crc := crc32.Checksum(key[:], castagnoli)
	for _, part := range parts {
		crc = crc32.Update(crc, castagnoli, part)
	}
	return crc
}

// appendRecord appends the record that is stored under id. Head appends the
// head; body is what is in the record of it.
func appendRecord(b []byte, id uint64, r *record, head func([]byte) []byte, body [][]byte) ([]byte, error) {
	start := len(b)
	b = append(b, recordVersion)
	b = append(b, r.key[:]...)
	b = binary.BigEndian.AppendUint64(b, r.base)
	b = binary.BigEndian.AppendUint32(b, r.size)
	b = binary.BigEndian.AppendUint32(b, r.until)
	b = binary.BigEndian.AppendUint32(b, r.gen)
	lengths := len(b)
	b = append(b, make([]byte, 4+2+crcBytes)...)
	b = append(b, r.name...)
	headAt := len(b)
	b = head(b)
	n := len(b) - headAt
	if n > maxHeadBytes || len(r.name) > MaxName {
		return b[:start], errTooLarge
	}
	binary.BigEndian.PutUint32(b[lengths:], uint32(n))
	binary.BigEndian.PutUint16(b[lengths+4:], uint16(len(r.name)))
	binary.BigEndian.PutUint32(b[lengths+6:], sum(id, b[start:lengths+6], r.name))
	for _, piece := range body {
		b = append(b, piece...)
	}
	return binary.BigEndian.AppendUint32(b, sum(id, b[headAt:])), nil
}

// decodeFront reads a record but for head and body, which it does not look at.
// Nothing is copied.
func decodeFront(id uint64, b []byte) (r record, rest []byte, err error) {
	if len(b) < fixedBytes+crcBytes || b[0] != recordVersion {
		return record{}, nil, errRecord
	}
	nameEnd := fixedBytes + int(binary.BigEndian.Uint16(b[41:]))
	if nameEnd+crcBytes > len(b) {
		return record{}, nil, errRecord
	}
	r = record{
		key:   Key(b[1:17]),
		base:  binary.BigEndian.Uint64(b[17:]),
		size:  binary.BigEndian.Uint32(b[25:]),
		until: binary.BigEndian.Uint32(b[29:]),
		gen:   binary.BigEndian.Uint32(b[33:]),
		name:  b[fixedBytes:nameEnd],
	}
	if binary.BigEndian.Uint32(b[43:]) != sum(id, b[:43], r.name) {
		return record{}, nil, errRecord
	}
	headLen := int64(binary.BigEndian.Uint32(b[37:]))
	rest = b[nameEnd : len(b)-crcBytes]
	inRecord := int64(len(rest)) - headLen
	switch {
	case headLen > maxHeadBytes, r.size > MaxItemBytes, inRecord < 0,
		r.base == 0 && inRecord != int64(r.size), r.base != 0 && inRecord != 0:
		return record{}, nil, errRecord
	}
	r.head, r.body = rest[:headLen], rest[headLen:]
	return r, rest, nil
}

// decodeRecord reads the record that is stored under id. Nothing is copied.
func decodeRecord(id uint64, b []byte) (record, error) {
	r, rest, err := decodeFront(id, b)
	if err != nil {
		return record{}, err
	}
	if binary.BigEndian.Uint32(b[len(b)-crcBytes:]) != sum(id, rest) {
		return record{}, errRecord
	}
	return r, nil
}

// appendChunk appends the chunk that is stored under id.
func appendChunk(b []byte, id uint64, pieces ...[]byte) []byte {
	for _, piece := range pieces {
		b = append(b, piece...)
	}
	return binary.BigEndian.AppendUint32(b, sum(id, pieces...))
}

// decodeChunk reads the chunk of n bytes that is stored under id. Nothing is
// copied.
func decodeChunk(id uint64, b []byte, n int) ([]byte, error) {
	if len(b) != n+crcBytes || binary.BigEndian.Uint32(b[n:]) != sum(id, b[:n]) {
		return nil, errRecord
	}
	return b[:n], nil
}

// chunksOf is the number of chunks of a body.
func chunksOf(size int64) int { return int((size + chunkBytes - 1) / chunkBytes) }

// diskBytes is about what an entry takes in the file. Values of more than a
// third of a page are two to a run of pages.
func diskBytes(front, size int64, chunked bool) uint32 {
	value := func(n int64) int64 {
		if n += elementBytes; n <= filePage/3 {
			return n + n/64
		}
		return ((2*n+pageHeader+filePage-1)/filePage*filePage + 1) / 2
	}
	if !chunked {
		return uint32(value(front + size))
	}
	return uint32(value(front) + size/chunkBytes*pairPages/2*filePage + value(size%chunkBytes+crcBytes))
}

// seconds is a time as the file has it.
func seconds(t time.Time) uint32 { return uint32(max(0, min(t.Unix(), 1<<32-1))) }
