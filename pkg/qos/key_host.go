package qos

import "strings"

// hostKey is the host that a Host header or server name is counted under: in
// lower case, without its port, and without one leading "www." if more follows;
// unknown if there is none.
// An IPv6 literal keeps its brackets. Upper case is folded in ASCII only, which
// is all that host names have (RFC 4343 §3).
func hostKey(host string) string {
	if host == "" {
		return unknown
	}
	host = withoutPort(lower(host))
	if rest, ok := strings.CutPrefix(host, "www."); ok && rest != "" {
		return rest
	}
	return host
}

// withoutPort drops a port (RFC 3986 §3.2.3), which may be empty. What has no
// such form is kept whole, an IPv6 address without brackets among it.
func withoutPort(host string) string {
	end := strings.LastIndexByte(host, ':')
	if end <= 0 || !digits(host[end+1:]) {
		return host
	}
	name := host[:end]
	if strings.HasPrefix(name, "[") {
		if !strings.HasSuffix(name, "]") {
			return host
		}
		return name
	}
	if strings.IndexByte(name, ':') >= 0 {
		return host
	}
	return name
}

// compatHostKey is the host as connect-qos 5.7.0 normalises it.
func compatHostKey(original string) string {
	host := lower(original)
	if end := strings.LastIndexByte(host, ':'); end > 0 && end+1 < len(host) && host[end-1] != ':' && digits(host[end+1:]) {
		host = host[:end]
	}
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 {
		host = host[colon+1:]
		if host == "" {
			return original
		}
		return host
	}
	if rest, ok := strings.CutPrefix(host, "www."); ok && rest != "" {
		return rest
	}
	return host
}

// lower is strings.ToLower for ASCII; it leaves all other bytes alone.
func lower(s string) string {
	for i := range len(s) {
		if c := s[i]; c >= 'A' && c <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if c := b[i]; c >= 'A' && c <= 'Z' {
					b[i] = c + 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// digits reports whether s has no byte that is not a digit.
func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
