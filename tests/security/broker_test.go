package security

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Files of deploy/nats.
const (
	shared  = "nats.conf"
	perEdge = "nats-per-edge.conf"
	withTLS = "nats-tls.conf"
)

// users are all that the files name.
var users = []string{"edge", "edge-1", "edge-2", "coordinator", "denylist", "alerts", "operator"}

// broker is a NATS server with the configuration of deploy/nats.
type broker struct {
	url string
	dir string // of the users' files
	ca  string // file of the authority, if it speaks TLS with a private one
}

// startBroker runs the server. The folder /etc/nats is one of the test's, which
// prepare may put more into.
func startBroker(t *testing.T, file string, prepare func(etc string)) *broker {
	t.Helper()
	etc, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(etc, "credentials"), 0o700))
	files, err := filepath.Glob("../../deploy/nats/*.conf")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, from := range files {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		content = []byte(strings.ReplaceAll(string(content), "/etc/nats", etc))
		require.NoError(t, os.WriteFile(filepath.Join(etc, filepath.Base(from)), content, 0o600))
	}
	var hashes strings.Builder
	for _, user := range users {
		hash, err := bcrypt.GenerateFromPassword([]byte("password of "+user), bcrypt.MinCost)
		require.NoError(t, err)
		if strings.HasPrefix(user, "edge-") != (file == perEdge) && strings.HasPrefix(user, "edge") {
			continue // the server refuses what it does not use
		}
		fmt.Fprintf(&hashes, "%s_PASSWORD: %q\n", strings.ToUpper(strings.ReplaceAll(user, "-", "_")), hash)
		require.NoError(t, os.WriteFile(filepath.Join(dir, user), []byte(user+"\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, user+".password"), []byte("password of "+user+"\n"), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(etc, "credentials", "passwords.conf"), []byte(hashes.String()), 0o600))
	if prepare != nil {
		prepare(etc)
	}
	opts, err := server.ProcessConfigFile(filepath.Join(etc, file))
	require.NoError(t, err)
	opts.Host, opts.Port, opts.HTTPHost, opts.HTTPPort = "127.0.0.1", server.RANDOM_PORT, "", 0
	opts.StoreDir, opts.NoSigs, opts.NoLog = t.TempDir(), true, true
	ns, err := server.NewServer(opts)
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	require.True(t, ns.ReadyForConnections(await.Limit))
	return &broker{url: ns.ClientURL(), dir: dir}
}

// as returns the settings of a service that has one user's credentials.
func (b *broker) as(user string) cluster.Settings {
	return cluster.Settings{
		"CCNQ_NATS_USER_FILE":     filepath.Join(b.dir, user),
		"CCNQ_NATS_PASSWORD_FILE": filepath.Join(b.dir, user+".password"),
	}
}

// sharedUsers gives all edges one user, ownUsers each its own.
func (b *broker) sharedUsers(service string) cluster.Settings {
	if strings.HasPrefix(service, "edge-") {
		service = "edge"
	}
	return b.as(service)
}

func (b *broker) ownUsers(service string) cluster.Settings { return b.as(service) }

// connect returns a connection of ccnq's own, with a user's credentials.
func (b *broker) connect(t *testing.T, user string) *bus.Conn {
	t.Helper()
	up := make(chan bool, 10)
	log := &cluster.Log{}
	conn, err := bus.Connect(bus.Options{
		URL: b.url, Name: "a test", UserFile: filepath.Join(b.dir, user), PasswordFile: filepath.Join(b.dir, user+".password"),
		CAFile: b.ca, Logger: log.Logger(), OnChange: func(connected bool) { up <- connected },
	})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	require.True(t, await.Value(t, "a connection", up))
	return conn
}

// refuses tries to connect while believing in another authority, and returns
// why that fails.
func (b *broker) refuses(t *testing.T, ca string) error {
	t.Helper()
	opts := []nats.Option{nats.UserInfo("edge", "password of edge")}
	if ca != "" {
		opts = append(opts, nats.RootCAs(ca))
	}
	_, err := nats.Connect(b.url, opts...)
	require.Error(t, err)
	return err
}

// writeCertificate puts a server's certificate where nats-tls.conf looks for it.
func writeCertificate(t *testing.T, etc string, a *authority) {
	t.Helper()
	cert, key := a.issue(t)
	require.NoError(t, os.Mkdir(filepath.Join(etc, "tls"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(etc, "tls", "server.pem"), cert, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(etc, "tls", "server-key.pem"), key, 0o600))
}

// thief holds a stolen credential and speaks to NATS without ccnq's code.
type thief struct {
	t      *testing.T
	nc     *nats.Conn
	errors chan error
}

// steal connects with the credential of a user.
func (b *broker) steal(t *testing.T, user string) *thief {
	t.Helper()
	th := &thief{t: t, errors: make(chan error, 1000)}
	opts := []nats.Option{
		nats.UserInfo(user, "password of "+user),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { th.errors <- err }),
	}
	if b.ca != "" {
		opts = append(opts, nats.RootCAs(b.ca))
	}
	var err error
	th.nc, err = nats.Connect(b.url, opts...)
	require.NoError(t, err)
	t.Cleanup(th.nc.Close)
	return th
}

// violation returns the server's complaint about what was just sent, or
// nothing if it has none.
func (th *thief) violation() string {
	th.t.Helper()
	require.NoError(th.t, th.nc.FlushTimeout(await.Limit))
	// The server answers in order, so a complaint about a forbidden sentinel
	// comes after any about what was sent before.
	const sentinel = "forbidden.to.all.of.them.sentinel"
	require.NoError(th.t, th.nc.Publish(sentinel, nil))
	found := ""
	for {
		err := await.Value(th.t, "a complaint", th.errors)
		if strings.Contains(err.Error(), sentinel) {
			return found
		}
		found = err.Error()
	}
}

// cannotPublish requires that the server refuses a message.
func (th *thief) cannotPublish(subject, payload string) {
	th.t.Helper()
	require.NoError(th.t, th.nc.PublishRequest(subject, "_INBOX_edge-1.x.y", []byte(payload)))
	require.Contains(th.t, th.violation(), fmt.Sprintf("Permissions Violation for Publish to %q", subject))
}

// cannotSubscribe requires that the server refuses a subscription.
func (th *thief) cannotSubscribe(subject string) {
	th.t.Helper()
	sub, err := th.nc.SubscribeSync(subject)
	require.NoError(th.t, err)
	require.Contains(th.t, th.violation(), fmt.Sprintf("Permissions Violation for Subscription to %q", subject))
	_ = sub.Unsubscribe() // the server has dropped it
}

// listens subscribes to what may be subscribed to.
func (th *thief) listens(subject string) *nats.Subscription {
	th.t.Helper()
	sub, err := th.nc.SubscribeSync(subject)
	require.NoError(th.t, err)
	require.Empty(th.t, th.violation())
	return sub
}

// hour is a block's length.
const hour = time.Hour
