package proxy

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

var (
	errConnect = errors.New("CONNECT is not served here")
	errTarget  = errors.New("the request target has no valid form")
)

// requestTarget returns the request target for the origin: the bytes that the client sent, in origin form, without
// the base path. The forms are those of RFC 9112 section 3.2.
func requestTarget(r *http.Request) (string, error) {
	if r.Method == http.MethodConnect {
		return "", errConnect
	}
	target := r.RequestURI
	switch {
	case strings.HasPrefix(target, "/"):
		return target, nil
	case target == "*":
		if r.Method != http.MethodOptions {
			return "", errTarget
		}
		return target, nil
	case r.ProtoMajor != 1: // RFC 9113 section 8.3.1: a path or "*"
		return "", errTarget
	}
	return originForm(target, r.URL)
}

// originForm strips scheme and authority from a target in absolute form. The parsed URL u decides whether it is one;
// a target with user information is refused (RFC 9110 section 4.2.4).
func originForm(target string, u *url.URL) (string, error) {
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.Opaque != "" {
		return "", errTarget
	}
	_, rest, ok := strings.Cut(target, "://")
	if !ok {
		return "", errTarget
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		return "/", nil
	}
	if rest[end] == '?' {
		return "/" + rest[end:], nil
	}
	return rest[end:], nil
}

// originURL returns the URL with which net/http writes exactly target, which is in origin form or "*", into the
// request line. It reports an error where net/http has no way to do so: a target that begins with two slashes and
// also holds a byte that RFC 3986 does not allow in a path.
func (p *Proxy) originURL(target string) (url.URL, error) {
	u := url.URL{Scheme: p.scheme, Host: p.address, Opaque: target}
	if p.base != "" && target != "*" {
		u.Opaque = p.base + target
	}
	if !strings.HasPrefix(u.Opaque, "//") {
		return u, nil
	}
	// An opaque part with two slashes would be written with the scheme in front, as another authority.
	path, query, hasQuery := strings.Cut(u.Opaque, "?")
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return u, errTarget
	}
	want := u.Opaque
	u.Opaque, u.Path, u.RawPath, u.RawQuery, u.ForceQuery = "", decoded, path, query, hasQuery
	if u.RequestURI() != want {
		return u, errTarget
	}
	return u, nil
}
