package rfc9111

import (
	"net/http"
	"testing"
	"time"
)

// stored is a response as a site sends them.
func stored(b *testing.B) *Response {
	b.Helper()
	return store(b, &Policy{}, "Cache-Control: public, max-age=3600, stale-while-revalidate=60", "Content-Type: text/html; charset=utf-8",
		`ETag: "5f3a-61b2c"`, "Last-Modified: "+date(-time.Hour), "Vary: Accept-Encoding", "Server: origin", "Content-Encoding: br",
		"Content-Length: 24378", "X-Frame-Options: DENY", "Strict-Transport-Security: max-age=31536000", "Link: </a.css>; rel=preload")
}

func browser() http.Header {
	return fields("Accept: text/html,application/xhtml+xml", "Accept-Encoding: gzip, deflate, br, zstd", "Accept-Language: en-GB,en;q=0.9",
		"User-Agent: Mozilla/5.0", "Cookie: a=b; c=d", "Cache-Control: max-age=0")
}

func BenchmarkKey(b *testing.B) {
	p, r := &Policy{}, ask("www.one.example", "/some/longer/path/to/a/page?with=a&query=string")
	b.ReportAllocs()
	for b.Loop() {
		p.Key(r, false)
	}
}

func BenchmarkVariant(b *testing.B) {
	index, h := NewIndex("", []string{"Accept-Encoding"}, 1), browser()
	b.ReportAllocs()
	for b.Loop() {
		index.Variant(Key{}, h)
	}
}

func BenchmarkDecide(b *testing.B) {
	res, now := stored(b), start.Add(time.Minute)
	plain := browser()
	delete(plain, "Cache-Control")
	for name, h := range map[string]http.Header{"plain": plain, "directives": browser()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				res.Decide(RequestDirectives(h), now)
			}
		})
	}
}

func BenchmarkPrecondition(b *testing.B) {
	res, h := stored(b), browser()
	h.Set("If-None-Match", `"other", W/"5f3a-61b2c"`)
	b.ReportAllocs()
	for b.Loop() {
		res.Precondition(h)
	}
}

func BenchmarkStore(b *testing.B) {
	p, r, h := &Policy{}, ask("www.one.example", "/a?b"), stored(b).Header
	for name, targeted := range map[string]bool{"plain": false, "targeted": true} {
		h := h.Clone()
		if targeted {
			h.Set("CDN-Cache-Control", "max-age=60")
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, reason := p.Store(r, http.StatusOK, h, start, start); reason != Stored {
					b.Fatal(reason)
				}
			}
		})
	}
}

func BenchmarkCodec(b *testing.B) {
	res := stored(b)
	encoded := res.Append(nil)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		buffer := make([]byte, 0, len(encoded))
		for b.Loop() {
			buffer = res.Append(buffer[:0])
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkParseRange(b *testing.B) {
	lines := []string{"bytes=0-499, 1000-1499, -500"}
	b.ReportAllocs()
	for b.Loop() {
		ParseRange(lines, 12345)
	}
}
