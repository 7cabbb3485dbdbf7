package gateway

import (
	"net/http"

	"github.com/ccnq/ccnq/pkg/clientip"
)

// identify finds who asks: the address of the client and its group. A request
// whose address is one of the trusted proxies' own is of nobody known.
func (g *Gateway) identify(x *exchange) Verdict {
	if x.r.Method == http.MethodConnect {
		return badRequest()
	}
	client, source := g.opts.Clients.Resolve(x.r)
	if source == clientip.Fallback {
		g.metrics.fallbacks.Inc()
	}
	x.client = client
	x.relayed = source == clientip.Header
	if !client.IsValid() {
		x.anonymous = true
		return goOn
	}
	x.anonymous = g.opts.Trusted.Contains(client)
	x.exempt = g.opts.Allowlist.Contains(client)
	x.group = g.opts.Groups.Group(client)
	g.spread.see(client)
	return goOn
}
