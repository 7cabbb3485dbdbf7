package cluster

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// Settings are environment variables of the services.
type Settings map[string]string

// With returns settings in which those of other hold where both say something.
func (s Settings) With(other Settings) Settings {
	out := maps.Clone(s)
	if out == nil {
		out = Settings{}
	}
	maps.Copy(out, other)
	return out
}

// Environ returns the settings in the form of [os.Environ].
func (s Settings) Environ() []string {
	out := make([]string, 0, len(s))
	for name, value := range s {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// Everything is a ruleset that matches every request.
const Everything = `[[{"target": "path", "matchType": "regex", "value": "."}]]`

// Common are the settings of all tests: free ports, visitors who tell their
// address, and limits of time that no slow machine reaches. Tests about a time
// limit set their own.
func Common(upstream string) Settings {
	return Settings{
		"CCNQ_ADMIN_ADDR":               "127.0.0.1:0",
		"CCNQ_CLIENT_IP_HEADER":         visitor.AddressField,
		"CCNQ_PORT":                     "0",
		"CCNQ_QUEUE_ADMIT_TIMEOUT_MS":   "10000",
		"CCNQ_QUEUE_PENDING_TIMEOUT_MS": "60000",
		"CCNQ_SHUTDOWN_DELAY_MS":        "0",
		"CCNQ_TRUSTED_PROXIES":          "127.0.0.0/8,::1",
		"CCNQ_UPSTREAM_URL":             upstream,
	}
}

// Postgres returns the settings that lead to a database.
func Postgres(t testing.TB, db testdb.DB) Settings {
	t.Helper()
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	password, _ := u.User.Password()
	return Settings{
		"CCNQ_PG_HOST":     u.Hostname(),
		"CCNQ_PG_PORT":     u.Port(),
		"CCNQ_PG_USER":     u.User.Username(),
		"CCNQ_PG_PASSWORD": password,
		"CCNQ_PG_DATABASE": strings.TrimPrefix(u.Path, "/"),
		"CCNQ_PG_SCHEMA":   db.Schema,
		"CCNQ_PG_POOL_MAX": "10",
	}
}
