package denylist

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

// both runs a test on both stores.
func both(t *testing.T, test func(s *site, start func() *Service)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		test(s, func() *Service { return s.start(s.config(), Deps{Memory: true}) })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		environ, _ := s.database()
		test(s, func() *Service { return s.start(s.config(environ...), Deps{}) })
	})
}

func TestDenialsBecomeBlocks(t *testing.T) {
	t.Parallel()
	both(t, func(s *site, start func() *Service) {
		t := s.t
		s.untilReady(start())
		now := time.Now().UTC()
		o := s.outbox("o1")
		o.deny(denial{"203.0.113.7", 2, now}, denial{"2001:db8::1", 1, now})
		o.deny(denial{"203.0.113.7", 1, now.Add(time.Millisecond)})
		s.until("the address is blocked", func() bool { return s.inForce(wire.ScopeIP, "203.0.113.7") })
		block, _ := s.key(wire.ScopeIP, "203.0.113.7")
		require.WithinDuration(t, now.Add(30*24*time.Hour+time.Millisecond), block.BlockedUntil, time.Microsecond)
		require.Equal(t, "denials", block.Reason)
		// Four addresses of one range.
		for i, ip := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4"} {
			require.False(t, s.inForce(wire.ScopeRange, "198.51.100.0/24"), i)
			o.deny(denial{ip, 1, now})
		}
		s.until("the range is blocked", func() bool { return s.inForce(wire.ScopeRange, "198.51.100.0/24") })
		s.until("both are told", func() bool { return len(s.changes(wire.TypeBlocked)) == 2 })
		told := s.changes(wire.TypeBlocked)
		require.Equal(t, "203.0.113.7", told[0].Target)
		require.Equal(t, "198.51.100.0/24", told[1].Target)
		require.Less(t, told[0].Version, told[1].Version)
		s.until("the mark knows both", func() bool {
			mark, ok := s.mark()
			return ok && mark.IPs == 1 && mark.Ranges == 1 && mark.Version == told[1].Version && !mark.Monitor
		})
		_, ok := s.key(wire.ScopeIP, "2001:db8::1")
		require.False(t, ok)

		why := s.explain("198.51.100.9")
		require.True(t, why.Blocked, "never denied itself")
		require.Len(t, why.Days, 4)
		why = s.explain("203.0.113.7")
		require.EqualValues(t, 3, why.Days[0].Count)
		require.Equal(t, "edge-1", why.Days[0].Samples[0].Edge)
		require.Equal(t, "/p", why.Days[0].Samples[0].Path)
	})
}

func TestOrders(t *testing.T) {
	t.Parallel()
	both(t, func(s *site, start func() *Service) {
		t := s.t
		s.untilReady(start())
		s.outbox("o1").deny(denial{"203.0.113.7", 3, time.Now()})
		s.until("the address is blocked", func() bool { return s.inForce(wire.ScopeIP, "203.0.113.7") })

		reply, err := s.block(wire.BlockRequest{Target: "::ffff:203.0.113.9/120", Seconds: 3600, Reason: "test", By: "me"})
		require.NoError(t, err)
		require.Equal(t, "203.0.113.0/24", reply.Target)
		require.Empty(t, reply.Warning)
		s.until("the range is blocked", func() bool { return s.inForce(wire.ScopeRange, "203.0.113.0/24") })

		shorter, err := s.block(wire.BlockRequest{Target: "203.0.113.0/24", Seconds: 60})
		require.NoError(t, err)
		require.Equal(t, reply.BlockedUntil, shorter.BlockedUntil, "a block is not shortened")
		require.Contains(t, shorter.Warning, "ends later")

		lifted, err := s.unblock(wire.UnblockRequest{Target: "203.0.113.7", By: "me"})
		require.NoError(t, err)
		require.Equal(t, wire.UnblockReply{Lifted: true, Forgiven: 1, StillBlockedBy: []string{"203.0.113.0/24"}}, lifted)
		s.until("it is lifted", func() bool { return !s.inForce(wire.ScopeIP, "203.0.113.7") })
		s.until("and that is told", func() bool { return len(s.changes(wire.TypeUnblocked)) == 1 })
		told := s.changes(wire.TypeUnblocked)[0]
		require.Equal(t, "me", told.By)
		require.False(t, told.KeepCounts)

		lifted, err = s.unblock(wire.UnblockRequest{Target: "203.0.113.7"})
		require.NoError(t, err)
		require.False(t, lifted.Lifted)
	})
}

func TestOrdersAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.untilReady(s.start(s.config("CCNQ_TRUSTED_PROXIES=192.0.2.10", "CCNQ_QUEUE_ALLOWLIST=192.0.2.200",
		"CCNQ_QUEUE_ENABLED=false"), Deps{Memory: true}))
	for target, want := range map[string]string{
		"192.0.2.10":    "CCNQ_TRUSTED_PROXIES",
		"192.0.2.0/28":  "CCNQ_TRUSTED_PROXIES",
		"10.0.0.0/8":    "wider than /16",
		"2001:db8::/24": "wider than /32",
		"everybody":     "neither an address nor a CIDR range",
		"fe80::1%eth0":  "neither an address nor a CIDR range",
	} {
		_, err := s.block(wire.BlockRequest{Target: target, Seconds: 60})
		require.Equal(t, bus.CodeInvalid, bus.CodeOf(err), target)
		require.ErrorContains(t, err, want)
	}
	for _, seconds := range []int64{0, -1, 1 << 62} {
		_, err := s.block(wire.BlockRequest{Target: "192.0.2.1", Seconds: seconds})
		require.Equal(t, bus.CodeInvalid, bus.CodeOf(err))
	}
	for _, reason := range []string{"a\x00b", "a\u009bb", "a\u202eb", "a\u200bb"} {
		_, err := s.block(wire.BlockRequest{Target: "192.0.2.1", Seconds: 60, Reason: reason})
		require.Equal(t, bus.CodeInvalid, bus.CodeOf(err), reason)
	}

	reply, err := s.block(wire.BlockRequest{Target: "192.0.2.0/24", Seconds: 60, Force: true})
	require.NoError(t, err)
	require.Contains(t, reply.Warning, "CCNQ_QUEUE_ENABLED")
	require.Contains(t, reply.Warning, "CCNQ_QUEUE_ALLOWLIST")
	require.NotContains(t, reply.Warning, "restart")
	require.Contains(t, s.explain("192.0.2.200").Warning, "CCNQ_QUEUE_ALLOWLIST")
	require.NotContains(t, s.explain("192.0.2.201").Warning, "CCNQ_QUEUE_ALLOWLIST")
	require.Contains(t, s.explain("192.0.2.201").Warning, "CCNQ_QUEUE_ENABLED")
	require.Empty(t, s.explain("198.51.100.1").Warning, "it is not blocked")
}

func TestListInPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.untilReady(s.start(s.config(), Deps{Memory: true}))
	targets := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "198.51.100.0/24", "203.0.113.0/24"}
	for _, target := range targets {
		_, err := s.block(wire.BlockRequest{Target: target, Seconds: 3600})
		require.NoError(t, err)
	}
	for limit := 1; limit <= len(targets)+1; limit++ {
		var got []string
		for after := ""; ; {
			page, err := ask[wire.ListRequest, wire.ListReply](s, wire.SubjectList, wire.ListRequest{Limit: limit, After: after})
			require.NoError(t, err)
			require.NotEmpty(t, page.Blocks)
			for _, b := range page.Blocks {
				got = append(got, b.Target)
			}
			if after = page.Next; after == "" {
				break
			}
		}
		require.Equal(t, targets, got, limit)
	}
	page, err := ask[wire.ListRequest, wire.ListReply](s, wire.SubjectList, wire.ListRequest{Scope: wire.ScopeRange})
	require.NoError(t, err)
	require.Len(t, page.Blocks, 2)
	for _, after := range []string{"x", "ip.", "ip.x", "range.192.0.2.1"} {
		_, err := ask[wire.ListRequest, wire.ListReply](s, wire.SubjectList, wire.ListRequest{After: after})
		require.Equal(t, bus.CodeInvalid, bus.CodeOf(err), after)
	}
	_, err = s.unblock(wire.UnblockRequest{Target: "192.0.2.1"})
	require.NoError(t, err)
	page, err = ask[wire.ListRequest, wire.ListReply](s, wire.SubjectList, wire.ListRequest{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "192.0.2.2", page.Blocks[0].Target)
	page, err = ask[wire.ListRequest, wire.ListReply](s, wire.SubjectList, wire.ListRequest{Limit: 1, Expired: true})
	require.NoError(t, err)
	require.Equal(t, "192.0.2.1", page.Blocks[0].Target)
}
