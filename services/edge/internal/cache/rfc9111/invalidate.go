package rfc9111

import (
	"net/http"
	"net/url"
	"strings"
)

// Safe reports whether a method is known to be safe (RFC 9110 section 9.2.1). Every other one may change what is stored.
func Safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// Invalidates returns the keys of what an answer to the unsafe request r makes invalid: nothing if the answer is an
// error, else the resource itself and, where they are on the same host, what Location and Content-Location name (RFC
// 9111 section 4.4). trusted is as for [Policy.Key].
func (p *Policy) Invalidates(r *http.Request, trusted bool, status int, h http.Header) []Key {
	if Safe(r.Method) || status < 200 || status > 399 {
		return nil
	}
	keys := []Key{p.Key(r, trusted)}
	base, err := url.Parse(scheme(r) + "://" + host(r) + p.target(r))
	if err != nil {
		return keys
	}
	for _, name := range []string{"Location", "Content-Location"} {
		if len(h[name]) != 1 {
			continue
		}
		if target, ok := p.sameHost(r, base, h[name][0]); ok {
			keys = append(keys, p.keyOf(r, target, trusted))
		}
	}
	return keys
}

// sameHost resolves a reference against the URL of the request and returns its target if the origin is the same.
func (p *Policy) sameHost(r *http.Request, base *url.URL, ref string) (string, bool) {
	u, err := base.Parse(trimSpace(ref))
	if err != nil || u.Opaque != "" || u.Scheme != scheme(r) {
		return "", false
	}
	other := http.Request{Host: u.Host, TLS: r.TLS}
	if !strings.EqualFold(host(&other), host(r)) {
		return "", false
	}
	return p.withoutQuery(u.RequestURI()), true
}
