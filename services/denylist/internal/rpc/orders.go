package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// Ranges with shorter prefixes hold very many addresses, and are blocked by
// force only.
const (
	shortest4 = 16
	shortest6 = 32
)

func invalid(format string, args ...any) error {
	return refusal{bus.CodeInvalid, fmt.Sprintf(format, args...)}
}

// order reads the target of a request that has been validated.
func order(target, reason, by string) (store.Order, error) {
	scope, prefix, err := wire.ParseTargetText(target)
	if err != nil {
		return store.Order{}, invalid("%v", err)
	}
	// An invalid byte of JSON has become U+FFFD, which is left alone: it may have
	// been one all along.
	if strings.ContainsFunc(reason+by, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) }) {
		return store.Order{}, invalid("reason and by must not hold control or formatting characters")
	}
	return store.Order{Scope: scope, Target: prefix, Reason: reason, By: by}, nil
}

func (s *Server) block(ctx context.Context, req wire.BlockRequest) (reply wire.BlockReply, err error) {
	o, err := order(req.Target, req.Reason, req.By)
	if err != nil {
		return reply, err
	}
	if !req.Force {
		if err := s.dangerous(o.Target); err != nil {
			return reply, err
		}
	}
	d := time.Duration(req.Seconds) * time.Second
	asked := time.Now()
	b, err := s.opts.Store.Block(ctx, o, d)
	if err != nil {
		return reply, err
	}
	s.opts.Changed()
	s.opts.Logger.Info("blocked by request", "target", o.Text(), "until", b.BlockedUntil, "by", o.By, "reason", o.Reason)
	reply = wire.BlockReply{Scope: o.Scope, Target: o.Text(), BlockedUntil: b.BlockedUntil, Version: b.Version}
	allowed, later := "", ""
	if s.opts.Allowlist.Overlaps(o.Target) {
		allowed = "addresses on CCNQ_QUEUE_ALLOWLIST are among these, and stay free"
	}
	// The minute is for the clocks of store and service, which may differ.
	if b.BlockedUntil.After(asked.Add(d + time.Minute)) {
		later = "a block that ends later was in force and stays; lift it first to shorten it"
	}
	reply.Warning = warning(s.opts.Inert, allowed, later, s.opts.Volatile(ctx, b.Version))
	return reply, nil
}

// dangerous says why a target must be blocked by force, if it must.
func (s *Server) dangerous(p netip.Prefix) error {
	if s.opts.Trusted.Overlaps(p) {
		return invalid("%s holds a proxy of CCNQ_TRUSTED_PROXIES, behind which are all its clients; force it if that is meant", p)
	}
	shortest := shortest4
	if p.Addr().Is6() {
		shortest = shortest6
	}
	if p.Bits() < shortest {
		return invalid("%s is wider than /%d and holds very many addresses; force it if that is meant", p, shortest)
	}
	return nil
}

func (s *Server) unblock(ctx context.Context, req wire.UnblockRequest) (reply wire.UnblockReply, err error) {
	o, err := order(req.Target, req.Reason, req.By)
	if err != nil {
		return reply, err
	}
	lifted, err := s.opts.Store.Unblock(ctx, o, req.KeepCounts)
	if err != nil {
		return reply, err
	}
	s.opts.Changed()
	s.opts.Logger.Info("lifted by request", "target", o.Text(), "lifted", lifted.Lifted, "forgiven", lifted.Forgiven,
		"by", o.By, "reason", o.Reason)
	reply = wire.UnblockReply{Lifted: lifted.Lifted, Forgiven: lifted.Forgiven}
	if lifted.Version > 0 {
		reply.Warning = s.opts.Volatile(ctx, lifted.Version)
	}
	holding, err := s.opts.Store.Holding(ctx, o.Target)
	if err != nil {
		// The lift is done, and that is what counts.
		s.opts.Logger.Warn("other blocks of a lifted target are not known", "target", o.Text(), "error", err)
		return reply, nil
	}
	for _, b := range holding {
		if b.Scope != o.Scope || b.Target != o.Text() {
			reply.StillBlockedBy = append(reply.StillBlockedBy, b.Target)
		}
	}
	return reply, nil
}

func (s *Server) rebuild(ctx context.Context, req wire.RebuildRequest) (reply wire.RebuildReply, err error) {
	info, err := bus.StreamInfo(ctx, s.opts.Conn, wire.StreamEvents)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return reply, refusal{bus.CodeUnavailable, "there is no event stream"}
	case err != nil:
		return reply, err
	case !s.opts.Rebuild():
		return reply, refusal{bus.CodeBusy, "a rebuild is under way"}
	}
	s.opts.Logger.Info("rebuild by request", "events", info.Messages, "by", req.By)
	return wire.RebuildReply{Events: info.Messages}, nil
}
