package qos

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// maxTrustedHops bounds how much of a header is read.
const maxTrustedHops = 100

// Actor is who a request is counted for: its host, the address of its client,
// and the subnet of that address. Make it with [Limiter.Actor] or
// [Limiter.NewActor], and use it with that limiter only.
type Actor struct {
	host   key
	ip     key
	subnet key
	judged key // with Compat, what the host's history is looked up under if twice

	twice    bool   // judged is not host
	number   uint16 // of the address in its subnet
	numbered bool   // an IPv4 address is known
}

// place is the number of an address in its subnet, or -1.
func (a *Actor) place() int {
	if a.numbered {
		return int(a.number)
	}
	return -1
}

// Host is the host as it is counted: the same for www.example.com:443 and
// Example.com. It may be a part of the request's memory.
func (a *Actor) Host() string { return a.host.text }

// Actor reads the host of a request (Host or :authority), and its client from the
// peer's address or, as the options say, from X-Forwarded-For. What is missing or
// cannot be read is counted under "unknown".
func (l *Limiter) Actor(r *http.Request) Actor {
	if l.settings.compat {
		return l.compatActor(r.Host, l.settings.compatClient(r))
	}
	if !l.clients {
		return l.newActor(r.Host, netip.Addr{})
	}
	return l.newActor(r.Host, l.settings.client(r))
}

// NewActor is for a caller that knows its clients itself. An IPv4-mapped address
// is the IPv4 address, and a zone is dropped; the zero Addr is unknown.
func (l *Limiter) NewActor(host string, addr netip.Addr) Actor {
	if l.settings.compat {
		ip := unknown
		if addr.IsValid() {
			ip = addr.String()
		}
		return l.compatActor(host, ip)
	}
	return l.newActor(host, normal(addr))
}

// newActor makes an actor of a normal address, which is left out if nothing asks for it.
func (l *Limiter) newActor(host string, addr netip.Addr) Actor {
	a := Actor{host: textKey(hostKey(host))}
	if l.clients {
		a.ip = addrKey(addr)
		a.subnet, a.number, a.numbered = subnetKey(addr, l.settings.maskBits)
	}
	return a
}

// compatActor counts a host under its key, but judges it by the key of the key.
func (l *Limiter) compatActor(host, ip string) Actor {
	if host == "" {
		host = unknown
	}
	once := compatHostKey(host)
	a := Actor{host: textKey(once), judged: textKey(compatHostKey(once)), ip: textKey(ip)}
	a.twice = a.judged != a.host
	subnet, number, numbered := compatSubnetKey(ip, l.settings.maskBits)
	a.subnet, a.number, a.numbered = textKey(subnet), number, numbered
	return a
}

// client is the address of a request's client; the zero Addr if it is unknown.
func (s *settings) client(r *http.Request) netip.Addr {
	if text := strings.TrimSpace(s.forwarded(r)); text != "" {
		if addr := parseAddr(text); addr.IsValid() {
			return addr
		}
	}
	return parseAddr(r.RemoteAddr)
}

// parseAddr reads an address with or without a port, an IPv6 one in brackets or
// not; what is neither gives the zero Addr.
func parseAddr(text string) netip.Addr {
	if peer, err := netip.ParseAddrPort(text); err == nil {
		return normal(peer.Addr())
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text, _ = strings.CutSuffix(inner, "]")
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return normal(addr)
}

// compatClient is the same as connect-qos has it: any text.
func (s *settings) compatClient(r *http.Request) string {
	if text := strings.TrimSpace(s.forwarded(r)); text != "" {
		return text
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil && host != "" {
		return host
	}
	if r.RemoteAddr != "" {
		return r.RemoteAddr
	}
	return unknown
}

// forwarded is the entry of X-Forwarded-For that names the client; empty if none.
func (s *settings) forwarded(r *http.Request) string {
	if proxied := r.TLS == nil && s.httpProxied || r.TLS != nil && s.tlsProxied; !proxied {
		return ""
	}
	lines := r.Header["X-Forwarded-For"]
	if len(lines) == 0 {
		return ""
	}
	if s.trustedHops == 0 {
		first, _, _ := strings.Cut(lines[0], ",")
		return first
	}
	return fromRight(lines, s.trustedHops)
}

// fromRight is the n-th entry from the right of a list in several lines (RFC 9110
// §5.3), empty if there are fewer.
func fromRight(lines []string, n int) string {
	for i := len(lines) - 1; i >= 0; i-- {
		for line, more := lines[i], true; more; n-- {
			comma := strings.LastIndexByte(line, ',')
			if n == 1 {
				return line[comma+1:]
			}
			if more = comma >= 0; more {
				line = line[:comma]
			}
		}
	}
	return ""
}
