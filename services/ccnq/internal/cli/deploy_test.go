package cli

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/testdb"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "credentials")
	got := call(t, "credentials", "--edge", "edge-1", dir)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Empty(t, got.stdout, "secrets are shown to nobody")
	require.FileExists(t, filepath.Join(dir, "edge-1", "nats-password"))
	require.NoDirExists(t, filepath.Join(dir, "edge"))

	got = call(t, "credentials", "--edge", "a.b", dir)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "a.b")
	require.Equal(t, exitConfig, call(t, "credentials").code)
}

func TestHealth(t *testing.T) {
	ready := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(ready)
		} else {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer s.Close()
	t.Setenv("CCNQ_ADMIN_ADDR", strings.TrimPrefix(s.URL, "http://"))
	require.Equal(t, exitOK, call(t, "health").code)
	ready = http.StatusServiceUnavailable
	got := call(t, "health")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "not ready")
	t.Setenv("CCNQ_ADMIN_ADDR", "nonsense")
	require.Equal(t, exitConfig, call(t, "health").code)
}

func TestMigrate(t *testing.T) {
	db := testdb.New(t)
	at, err := url.Parse(db.URL)
	require.NoError(t, err)
	password, _ := at.User.Password()
	for name, value := range map[string]string{
		"HOST": at.Hostname(), "PORT": at.Port(), "USER": at.User.Username(), "PASSWORD": password,
		"DATABASE": strings.TrimPrefix(at.Path, "/"), "SCHEMA": db.Schema,
	} {
		t.Setenv("CCNQ_PG_"+name, value)
	}
	got := call(t, "migrate")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, db.Schema+" is up to date")

	t.Setenv("CCNQ_PG_SCHEMA", "No")
	require.Equal(t, exitConfig, call(t, "migrate").code)
	t.Setenv("CCNQ_PG_SCHEMA", db.Schema)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	_, port, err := net.SplitHostPort(closed.Addr().String())
	require.NoError(t, err)
	t.Setenv("CCNQ_PG_PORT", port)
	require.Equal(t, exitFailed, call(t, "migrate").code, "nobody listens")
}

func TestDemo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	out := newLines()
	ended := make(chan int, 1)
	go func() { ended <- Run(ctx, "test", []string{"demo", "--listen", "127.0.0.1:0"}, out, out) }()
	_, address, _ := strings.Cut(<-out.lines, "http://")
	resp, err := http.Get("http://" + address)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	cancel()
	require.Equal(t, exitOK, <-ended)
}

// lines hands over each line that is written.
type lines struct{ lines chan string }

func newLines() *lines { return &lines{make(chan string, 10)} }

func (l *lines) Write(p []byte) (int, error) {
	l.lines <- strings.TrimSpace(string(p))
	return len(p), nil
}
