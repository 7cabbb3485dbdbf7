package wire

import (
	"encoding/hex"
	"fmt"
)

// RequestID names one request that asks for a place in a queue: a UUIDv7,
// made by the edge that received the request. Its array form is that of
// github.com/google/uuid and of a Postgres uuid.
type RequestID [16]byte

// ParseRequestID reads the canonical text form of a UUID (36 characters, RFC
// 9562 section 4). The zero UUID is refused.
func ParseRequestID(s string) (RequestID, error) {
	var id RequestID
	err := id.UnmarshalText([]byte(s))
	return id, err
}

// String returns the canonical text form.
func (id RequestID) String() string {
	var buf [36]byte
	id.encode(&buf)
	return string(buf[:])
}

// AppendText appends the canonical text form to b.
func (id RequestID) AppendText(b []byte) ([]byte, error) {
	var buf [36]byte
	id.encode(&buf)
	return append(b, buf[:]...), nil
}

// MarshalText returns the canonical text form.
func (id RequestID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

func (id RequestID) encode(buf *[36]byte) {
	hex.Encode(buf[0:8], id[0:4])
	buf[8] = '-'
	hex.Encode(buf[9:13], id[4:6])
	buf[13] = '-'
	hex.Encode(buf[14:18], id[6:8])
	buf[18] = '-'
	hex.Encode(buf[19:23], id[8:10])
	buf[23] = '-'
	hex.Encode(buf[24:36], id[10:16])
}

// UnmarshalText reads the canonical text form, see [ParseRequestID].
func (id *RequestID) UnmarshalText(b []byte) error {
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return fmt.Errorf("request id %q is not a UUID", clip(b))
	}
	var packed [32]byte
	copy(packed[0:8], b[0:8])
	copy(packed[8:12], b[9:13])
	copy(packed[12:16], b[14:18])
	copy(packed[16:20], b[19:23])
	copy(packed[20:32], b[24:36])
	if _, err := hex.Decode(id[:], packed[:]); err != nil {
		return fmt.Errorf("request id %q is not a UUID", clip(b))
	}
	if *id == (RequestID{}) {
		return fmt.Errorf("request id is the zero UUID")
	}
	return nil
}

// Part returns the share of ids, of parts shares in all, that id belongs to:
// the last byte modulo parts. The last byte of a UUIDv7 is random. Parts must
// be at least 1.
func (id RequestID) Part(parts int) int { return int(id[15]) % parts }

// clip bounds what an error message repeats of a hostile value.
func clip(b []byte) string {
	const most = 64
	if len(b) > most {
		return string(b[:most]) + "…"
	}
	return string(b)
}
