package gateway

import "net/http"

// checkBlocks refuses clients that are blocked, themselves or with their
// network, without asking anybody.
func (g *Gateway) checkBlocks(x *exchange) Verdict {
	blocks := g.opts.Blocks
	if blocks == nil || x.exempt || x.anonymous {
		return goOn
	}
	until, blocked := blocks.Check(x.client, x.arrived)
	if !blocked {
		return goOn
	}
	if blocks.Monitor() {
		x.wouldBlock = true
		return goOn
	}
	return refuse(Blocked, http.StatusTooManyRequests, until.Sub(x.arrived))
}
