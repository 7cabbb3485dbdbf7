package admin

import (
	"bytes"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/config"
)

func TestCommandAsksForReadiness(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	s := New(Options{
		Addr: "127.0.0.1:0", Registry: NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Checks: Checks{"part": func() Status {
			if ready.Load() {
				return OK
			}
			return NotReady("warming up")
		}},
	})
	require.NoError(t, s.Start(t.Context()))
	defer func() { require.NoError(t, s.Stop(t.Context())) }()
	_, port, err := net.SplitHostPort(s.Addr().String())
	require.NoError(t, err)

	for _, addr := range []config.Addr{config.Addr("127.0.0.1:" + port), config.Addr(":" + port), config.Addr("0.0.0.0:" + port)} {
		ready.Store(false)
		var stderr bytes.Buffer
		require.Equal(t, 1, Command(t.Context(), []string{"health"}, addr, &stderr), addr)
		require.Contains(t, stderr.String(), "warming up")
		ready.Store(true)
		stderr.Reset()
		require.Equal(t, 0, Command(t.Context(), []string{"health"}, addr, &stderr), stderr.String())
		require.Empty(t, stderr.String())
	}
}

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"health", "now"}, {"-health"}, {""}} {
		var stderr bytes.Buffer
		require.Equal(t, 2, Command(t.Context(), args, "127.0.0.1:1", &stderr), "%q", args)
		require.Contains(t, stderr.String(), "unknown arguments")
	}
	var stderr bytes.Buffer
	require.Equal(t, 1, Command(t.Context(), []string{"health"}, "off", &stderr))
	require.Contains(t, stderr.String(), "CCNQ_ADMIN_ADDR is off")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Equal(t, 1, Command(t.Context(), []string{"health"}, config.Addr(l.Addr().String()), &stderr), "nobody listens")
}
