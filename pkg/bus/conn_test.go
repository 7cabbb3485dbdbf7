package bus

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/testport"
	"github.com/ccnq/ccnq/pkg/wire"
)

func TestDisconnectedFailsAtOnce(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{Host: "127.0.0.1", Port: -1})
	c := connect(t, Options{URL: s.ClientURL()})
	c.until(t, true)
	require.Zero(t, c.Down())
	s.Stop()
	c.until(t, false)
	require.False(t, c.Connected())
	require.Positive(t, c.Down())
	_, err := ask(deadline(t), c)
	require.ErrorIs(t, err, ErrDisconnected)
	require.ErrorIs(t, Publish(c.Conn, "x", wire.Promoted{}), ErrDisconnected)
	require.ErrorIs(t, c.Ping(deadline(t)), ErrDisconnected)
	c.Close()
	c.Close()
	_, err = ask(deadline(t), c)
	require.ErrorIs(t, err, ErrDisconnected)
	require.ErrorIs(t, Subscribe(c.Conn, "x", func(wire.Promoted) {}, nil), ErrDisconnected)
}

// TestF23_ServerComesLateAndGoesAway starts both sides before there is a
// server, and takes the server away once more.
func TestF23_ServerComesLateAndGoesAway(t *testing.T) {
	t.Parallel()
	opts := embed.Options{Host: "127.0.0.1", Port: testport.Reserve(t)}
	address := "nats://127.0.0.1:" + strconv.Itoa(opts.Port)
	service, c := connect(t, Options{URL: address}), connect(t, Options{URL: address})
	serve(t, service, pending)
	require.False(t, c.Connected())
	require.Positive(t, c.Down())
	for range 2 {
		s := server(t, opts)
		service.until(t, true)
		c.until(t, true)
		require.Zero(t, c.Down())
		require.NoError(t, service.Ping(deadline(t)), "its subscriptions have arrived")
		was, err := ask(deadline(t), c)
		require.NoError(t, err)
		require.Equal(t, wire.WasPending, was)
		s.Stop()
		service.until(t, false)
		c.until(t, false)
	}
	require.Equal(t, 1, strings.Count(c.log.String(), `msg="connected to NATS"`))
	require.Equal(t, 1, strings.Count(c.log.String(), `msg="connected to NATS again"`))
	require.LessOrEqual(t, strings.Count(c.log.String(), "cannot be reached"), 3, "once for each outage")
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// TestF23_WrongCredentialsArePutRight connects with a wrong token, which is
// then put right in its file.
func TestF23_WrongCredentialsArePutRight(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{Host: "127.0.0.1", Port: -1, Token: "right-token"})
	path := file(t, "wrong-token")
	c := connect(t, Options{URL: s.ClientURL(), TokenFile: path})
	require.False(t, c.Connected())
	require.NoError(t, os.WriteFile(path, []byte("right-token\n"), 0o600))
	c.until(t, true)
	require.NoError(t, c.Ping(deadline(t)))
	require.Contains(t, c.log.String(), "uthorization")
	require.NotContains(t, c.log.String(), "right-token")
	require.NotContains(t, c.log.String(), "wrong-token")
}

func TestUnreadableFilesStopTheStart(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "no-such-file")
	for name, opts := range map[string]Options{
		"creds":    {CredsFile: missing},
		"user":     {UserFile: missing},
		"password": {UserFile: file(t, "u"), PasswordFile: missing},
		"token":    {TokenFile: missing},
		"ca":       {CAFile: missing},
	} {
		opts.URL = "nats://127.0.0.1:1"
		opts.Logger = slog.New(slog.DiscardHandler)
		_, err := Connect(opts)
		require.ErrorContains(t, err, "no-such-file", name)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config Config
		want   []string
	}{
		"default":   {Config{URL: "nats://127.0.0.1:4222"}, nil},
		"several":   {Config{URL: "nats://a:4222, tls://b,ws://c:80,wss://[::1]:443"}, nil},
		"user":      {Config{URL: "nats://a", UserFile: "u", PasswordFile: "p"}, nil},
		"empty":     {Config{}, []string{`CCNQ_NATS_URL: "" does not begin with nats://, tls://, ws:// or wss://`}},
		"no scheme": {Config{URL: "a:4222"}, []string{"CCNQ_NATS_URL: not a URL such as nats://127.0.0.1:4222"}},
		"no host":   {Config{URL: "nats://"}, []string{`CCNQ_NATS_URL: "nats://" has no host`}},
		"scheme":    {Config{URL: "http://a"}, []string{`CCNQ_NATS_URL: "http://a" does not begin with nats://, tls://, ws:// or wss://`}},
		"two bad": {Config{URL: "http://a,nats://"}, []string{
			`CCNQ_NATS_URL: "http://a" does not begin with nats://, tls://, ws:// or wss://`,
			`CCNQ_NATS_URL: "nats://" has no host`,
		}},
		"password in URL": {Config{URL: "nats://u:hunter2@a"}, []string{
			"CCNQ_NATS_URL: must not hold credentials; give them in CCNQ_NATS_USER_FILE and CCNQ_NATS_PASSWORD_FILE, or CCNQ_NATS_TOKEN_FILE",
		}},
		"malformed with password": {Config{URL: "nats://u:hunter2@a:%zz"}, []string{"CCNQ_NATS_URL: not a URL such as nats://127.0.0.1:4222"}},
		"half a user":             {Config{URL: "nats://a", UserFile: "u"}, []string{"CCNQ_NATS_USER_FILE and CCNQ_NATS_PASSWORD_FILE: one needs the other"}},
		"two ways": {Config{URL: "nats://a", TokenFile: "t", CredsFile: "c"}, []string{
			"CCNQ_NATS_CREDS_FILE, CCNQ_NATS_USER_FILE and CCNQ_NATS_TOKEN_FILE: give one of them, not several",
		}},
	} {
		require.Equal(t, test.want, test.config.Validate(), name)
	}
}

func TestConfigOptions(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	c := Config{URL: "u", CredsFile: "c", UserFile: "f", PasswordFile: "p", TokenFile: "t", CAFile: "a"}
	require.Equal(t, Options{
		URL: "u", Name: "n", CredsFile: "c", UserFile: "f", PasswordFile: "p", TokenFile: "t", CAFile: "a", Logger: logger,
	}, c.Options("n", logger))
}
