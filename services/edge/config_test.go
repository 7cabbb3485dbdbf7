package edge

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/config"
)

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"CCNQ_CLIENT_IP_HEADER=X Forwarded For": `CCNQ_CLIENT_IP_HEADER: "X Forwarded For" cannot be the name of a header`,
		"CCNQ_EDGE_ID=a.b":                      "CCNQ_EDGE_ID: ",
		"CCNQ_QUEUE_ENABLED=true":               "CCNQ_QUEUE_RULES_FILE: ",
		"CCNQ_TLS_CERT_FILE=cert.pem":           "CCNQ_TLS_CERT_FILE and CCNQ_TLS_KEY_FILE: ",
		"CCNQ_TRUSTED_PROXIES=10.0.0.0/33":      "CCNQ_TRUSTED_PROXIES: ",
		"CCNQ_TRUSTED_PROXIES=, ,":              `CCNQ_TRUSTED_PROXIES: ", ," names no address`,
	} {
		var cfg Config
		require.ErrorContains(t, config.Load([]string{"CCNQ_UPSTREAM_URL=http://127.0.0.1:1", setting}, &cfg), want, setting)
	}
	var cfg Config
	require.NoError(t, config.Load([]string{"CCNQ_UPSTREAM_URL=http://127.0.0.1:1", "CCNQ_CLIENT_IP_HEADER=X-Real-IP"}, &cfg))
}

func TestConfigChecksTheHostForTheOrigin(t *testing.T) {
	t.Parallel()
	load := func(host string) error {
		return config.Load([]string{"CCNQ_UPSTREAM_URL=http://127.0.0.1:1", "CCNQ_UPSTREAM_HOST=" + host}, &Config{})
	}
	for _, host := range []string{"", "example.org", "example.org.", "www_1.example.org:8080", "192.0.2.1", "192.0.2.1:443", "[2001:db8::1]", "[2001:db8::1]:443"} {
		require.NoError(t, load(host), host)
	}
	for _, host := range []string{
		"https://www.example.org/", "//example.org", "example.org/", "example.org/path", "example.org?q", "example.org#f", "user@example.org", "exam ple.org",
		"example.org:", ":80", "example.org:http", "example.org:65536", "example.org:-1", "2001:db8::1", "[2001:db8::1", "[]", "[example.org]", "exämple.org", "a%41", "a\x00b",
	} {
		require.ErrorContains(t, load(host), "CCNQ_UPSTREAM_HOST: ", host)
	}
	require.ErrorContains(t, load("https://www.example.org/"), `"https://www.example.org/" is not a host or host:port`)
}
