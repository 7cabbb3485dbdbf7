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
	} {
		var cfg Config
		require.ErrorContains(t, config.Load([]string{"CCNQ_UPSTREAM_URL=http://127.0.0.1:1", setting}, &cfg), want, setting)
	}
	var cfg Config
	require.NoError(t, config.Load([]string{"CCNQ_UPSTREAM_URL=http://127.0.0.1:1", "CCNQ_CLIENT_IP_HEADER=X-Real-IP"}, &cfg))
}
