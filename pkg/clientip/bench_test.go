package clientip

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var benchHeaders = map[string]struct{ header, line string }{
	"peer":      {"", "Accept: */*"},
	"single":    {"CF-Connecting-IP", "CF-Connecting-IP: 203.0.113.9"},
	"list":      {"X-Forwarded-For", "X-Forwarded-For: 198.51.100.66, 203.0.113.9, 192.0.2.8"},
	"list8KB":   {"X-Forwarded-For", "X-Forwarded-For: " + strings.Repeat("192.0.2.8, ", 800) + "192.0.2.8"},
	"forwarded": {"Forwarded", `Forwarded: for=198.51.100.66, for="[2001:db8:5::9]:4711";proto=https, for=192.0.2.8`},
}

func BenchmarkResolve(b *testing.B) {
	for name, tt := range benchHeaders {
		b.Run(name, func(b *testing.B) {
			r := NewResolver(Options{Header: tt.header, Trusted: mustSet(b, "192.0.2.0/24")})
			req := request(b, "192.0.2.1:4000", tt.line)
			b.ReportAllocs()
			for b.Loop() {
				r.Resolve(req)
			}
		})
	}
}

// The common forms must not allocate: every request is resolved.
func TestResolveDoesNotAllocate(t *testing.T) {
	for name, tt := range benchHeaders {
		r := NewResolver(Options{Header: tt.header, Trusted: mustSet(t, "192.0.2.0/24")})
		req := request(t, "192.0.2.1:4000", tt.line)
		require.Zero(t, testing.AllocsPerRun(100, func() { r.Resolve(req) }), name)
	}
}

func BenchmarkContains(b *testing.B) {
	set := mustSet(b, "203.0.113.5,198.51.100.0/24,192.0.2.10-192.0.2.20,2001:db8::/32")
	addr := addr("192.0.2.15")
	b.ReportAllocs()
	for b.Loop() {
		set.Contains(addr)
	}
}

func BenchmarkGroup(b *testing.B) {
	group, addr := Grouper{V4: 24, V6: 64}, addr("203.0.113.9")
	b.ReportAllocs()
	for b.Loop() {
		group.Group(addr)
	}
}
