package rpc

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

const (
	// defaultList is the number of blocks in a page whose size nobody chose.
	defaultList = 100
	// maxReply is the size from which a page ends early, in bytes of JSON.
	maxReply = 512 << 10
)

// list answers with one page: addresses first, then ranges. Its place is the
// scope, a dot and the target.
func (s *Server) list(ctx context.Context, req wire.ListRequest) (wire.ListReply, error) {
	reply := wire.ListReply{Blocks: []wire.BlockChange{}}
	scopes := []wire.Scope{wire.ScopeIP, wire.ScopeRange}
	after := ""
	if req.After != "" {
		scope, target, ok := strings.Cut(req.After, ".")
		at := wire.Scope(scope)
		if _, err := wire.ParseTarget(at, target); !ok || err != nil || req.Scope != "" && req.Scope != at {
			return reply, invalid("after is not the next of another reply")
		}
		after = target
		if at == wire.ScopeRange {
			scopes = scopes[1:]
		}
	}
	var inForceAt time.Time
	if !req.Expired {
		inForceAt = time.Now()
	}
	limit, size := req.Limit, 0
	if limit == 0 {
		limit = defaultList
	}
	for _, scope := range scopes {
		if req.Scope != "" && req.Scope != scope {
			continue
		}
		// One more than the page holds, to know whether it is the last.
		blocks, err := s.opts.Store.Blocks(ctx, store.Listing{
			Scope: scope, After: after, Limit: limit - len(reply.Blocks) + 1, InForceAt: inForceAt,
		})
		if err != nil {
			return reply, err
		}
		after = ""
		for _, b := range blocks {
			text, err := json.Marshal(b)
			if err != nil {
				return reply, err
			}
			size += len(text) + 1
			if n := len(reply.Blocks); n == limit || n > 0 && size > maxReply {
				last := reply.Blocks[n-1]
				reply.Next = string(last.Scope) + "." + last.Target
				return reply, nil
			}
			reply.Blocks = append(reply.Blocks, b)
		}
	}
	return reply, nil
}

func (s *Server) explain(ctx context.Context, req wire.ExplainRequest) (wire.ExplainReply, error) {
	reply := wire.ExplainReply{Blocks: []wire.BlockChange{}, Days: []wire.DenialDay{}}
	why, err := s.opts.Store.Explain(ctx, req.IP.Unmap())
	if err != nil {
		return reply, err
	}
	for _, b := range why.Blocks {
		reply.Blocked = true
		reply.Blocks = append(reply.Blocks, b)
		if b.BlockedUntil.After(reply.BlockedUntil) {
			reply.BlockedUntil = b.BlockedUntil
		}
	}
	reply.Days = append(reply.Days, why.Days...)
	if reply.Blocked {
		allowed := ""
		if s.opts.Allowlist.Contains(req.IP.Unmap()) {
			allowed = "the address is on CCNQ_QUEUE_ALLOWLIST: no block holds for it"
		}
		reply.Warning = warning(s.opts.Inert, allowed)
	}
	return reply, nil
}
