package listen

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// keyPair is a certificate for 127.0.0.1 that signs itself.
type keyPair struct {
	cert, key []byte // PEM
	roots     *x509.CertPool
}

func newKeyPair(t *testing.T, serial int64) keyPair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(serial),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	k := keyPair{
		cert:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:   pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
		roots: x509.NewCertPool(),
	}
	require.True(t, k.roots.AppendCertsFromPEM(k.cert))
	return k
}

// files writes both files with a modification time of its own for each version, as a clock with coarse ticks would
// not.
type files struct {
	cert, key string
	version   int64
}

func (f *files) write(t *testing.T, cert, key []byte) {
	t.Helper()
	f.version++
	for name, content := range map[string][]byte{f.cert: cert, f.key: key} {
		require.NoError(t, os.WriteFile(name, content, 0o600))
		require.NoError(t, os.Chtimes(name, time.Time{}, time.Unix(f.version, 0)))
	}
}

func serialOf(t *testing.T, addr string, roots *x509.CertPool) int64 {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestServer_TLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := &files{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	first, second, third := newKeyPair(t, 1), newKeyPair(t, 2), newKeyPair(t, 3)
	f.write(t, first.cert, first.key)
	var logged bytes.Buffer
	s, addr := start(t, Options{
		Handler: echoProto, TLSCertFile: f.cert, TLSKeyFile: f.key,
		Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	config := &tls.Config{RootCAs: first.roots}
	for want, protocol := range map[string]func(*http.Protocols){"HTTP/1.1": http1, "HTTP/2.0": http2} {
		_, got := get(t, newClient(t, protocol, config.Clone()), "https://"+addr+"/")
		require.Equal(t, want, got)
	}
	require.EqualValues(t, 1, serialOf(t, addr, first.roots))

	f.write(t, second.cert, second.key)
	require.EqualValues(t, 2, serialOf(t, addr, second.roots), "the next handshake sees the change")

	f.write(t, third.cert, second.key) // halfway through a renewal
	for range 3 {
		require.EqualValues(t, 2, serialOf(t, addr, second.roots), "a pair that does not fit is not used")
	}
	require.ErrorContains(t, s.Reload(), f.cert)
	f.write(t, third.cert, third.key)
	require.NoError(t, s.Reload())
	require.EqualValues(t, 3, serialOf(t, addr, third.roots))

	require.NoError(t, os.Remove(f.key))
	require.EqualValues(t, 3, serialOf(t, addr, third.roots), "files that are gone for a moment change nothing")
	require.ErrorContains(t, s.Reload(), f.key)
	require.Equal(t, 1, strings.Count(logged.String(), "level=WARN"), "one line for one bad pair: %s", logged.String())
}

func TestServer_ReloadWithoutTLS(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Options{Handler: echoProto})
	require.NoError(t, s.Reload())
}
