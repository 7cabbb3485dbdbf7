package qos

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"net/netip"
	"strings"
)

// key names a host, an address or a subnet. An address is in hi and lo, an IPv4
// one in its mapped form, so that it needs no memory of its own, and its text is
// addrText; all else is text alone.
type key struct {
	hi, lo uint64
	text   string
}

// maxText is the length of the longest text that is kept as it is. A host name
// has at most 253 bytes (RFC 1035 §2.3.4).
const maxText = 256

// addrText is the text of the key of every address. No header has such a byte (RFC
// 9110 §5.5), and no host stands in the same table as an address.
const addrText = "\x00"

// unknown is the text of a host or address that a request does not have.
const unknown = "unknown"

// textKey is the key of a text. A long one is replaced by its SHA-256, so that
// no client decides how much memory a key takes.
func textKey(text string) key {
	if len(text) > maxText {
		sum := sha256.Sum256([]byte(text))
		text = "sha256:" + hex.EncodeToString(sum[:])
	}
	return key{text: text}
}

// addrKey is the key of an address without its zone. That of the zero Addr is
// unknown.
func addrKey(addr netip.Addr) key {
	if !addr.IsValid() {
		return key{text: unknown}
	}
	b := addr.As16()
	return key{hi: binary.BigEndian.Uint64(b[:8]), lo: binary.BigEndian.Uint64(b[8:]), text: addrText}
}

// hash is one that nobody who does not know the seed can foresee.
func (k *key) hash(seed maphash.Seed) uint64 {
	if k.text == addrText {
		if k.hi == 0 { // as of IPv4: one number takes half the time of two
			return maphash.Comparable(seed, k.lo)
		}
		return maphash.Comparable(seed, [2]uint64{k.hi, k.lo})
	}
	return maphash.String(seed, k.text)
}

// clone is the key in memory of its own: a text may be a part of something large.
func (k *key) clone() key {
	own := *k
	if k.text != addrText {
		own.text = strings.Clone(k.text)
	}
	return own
}

// String is the key as connect-qos writes it.
func (k key) String() string {
	if k.text != addrText {
		return k.text
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], k.hi)
	binary.BigEndian.PutUint64(b[8:], k.lo)
	return netip.AddrFrom16(b).Unmap().String()
}
