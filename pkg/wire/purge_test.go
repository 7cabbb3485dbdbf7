package wire

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The goldens of purges.
func init() {
	maps.Copy(goldens, map[string]Message{
		"purge_reply":     PurgeReply{Warning: "the purge could not be written"},
		"purge_reply_min": PurgeReply{},
		"purge_request": PurgeRequest{ID: "0f8e2c1a9b7d4e63", By: "operator", Targets: []PurgeTarget{
			{PurgeURL, "https://example.org/a?b=c"}, {PurgePrefix, "https://example.org/papers/"}, {PurgeHost, "example.org:8443"},
		}},
		"purge_request_min": PurgeRequest{ID: "x", Targets: []PurgeTarget{{PurgeHost, "example.org"}}},
	})
}

// decodePurgeAs decodes into the type of like, if it is one of these.
func decodePurgeAs(like Message, data []byte) (m Message, ok bool, err error) {
	switch like.(type) {
	case PurgeReply:
		m, err = decode[PurgeReply](data)
	case PurgeRequest:
		m, err = decode[PurgeRequest](data)
	default:
		return nil, false, nil
	}
	return m, true, err
}

func TestPurgeTargets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scope  PurgeScope
		target string
		name   string // empty: refused
	}{
		{PurgeURL, "https://example.org/a?b=c", "example.org/a?b=c"},
		{PurgeURL, "HTTP://Example.ORG:80/A", "example.org/A"},
		{PurgeURL, "https://example.org:443", "example.org/"},
		{PurgeURL, "https://example.org:80/", "example.org:80/"},
		{PurgeURL, "https://example.org?x", "example.org/?x"},
		{PurgeURL, "https://example.org/a#part", "example.org/a"},
		{PurgeURL, "https://example.org#part", "example.org/"},
		{PurgeURL, "https://[2001:DB8::1]:8443/a%2Fb/../c", "[2001:db8::1]:8443/a%2Fb/../c"},
		{PurgePrefix, "https://example.org/papers/", "example.org/papers/*"},
		{PurgePrefix, "https://example.org", "example.org/*"},
		{PurgeHost, "Example.org", "example.org/*"},
		{PurgeHost, "example.org:8443", "example.org:8443/*"},
		{PurgeHost, "[::1]", "[::1]/*"},

		{PurgeURL, "example.org/a", ""},
		{PurgeURL, "/a", ""},
		{PurgeURL, "ftp://example.org/a", ""},
		{PurgeURL, "https:///a", ""},
		{PurgeURL, "https://user@example.org/", ""},
		{PurgeURL, "https://example.org:x/", ""},
		{PurgeURL, "https://example.org/a b", ""},
		{PurgeURL, "https://example.org/\n", ""},
		{PurgeURL, "", ""},
		{PurgeURL, "https://example.org/" + strings.Repeat("x", MaxPurgeTarget), ""},
		{PurgeHost, "https://example.org", ""},
		{PurgeHost, "example.org/a", ""},
		{PurgeHost, "example.org:", ""},
		{PurgeHost, "example.org:80", ""},
		{PurgeHost, "example.org:443", ""},
		{PurgeHost, ":80", ""},
		{"all", "example.org", ""},
		{"", "example.org", ""},
	} {
		name, prefix, err := PurgeTarget{c.scope, c.target}.Resources()
		if c.name == "" {
			require.Error(t, err, "%s %s", c.scope, c.target)
			require.Less(t, len(err.Error()), 300)
			continue
		}
		require.NoError(t, err, c.target)
		if prefix {
			name += "*"
		}
		require.Equal(t, c.name, name)
	}
}

func TestPurgeRequestRefuses(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"targets":[{"scope":"host","target":"a"}]}`:                                                         "id: edge id is empty",
		`{"id":"a b","targets":[{"scope":"host","target":"a"}]}`:                                              "id: ",
		`{"id":"a","targets":[]}`:                                                                             "targets has 0 entries, not 1..100",
		`{"id":"a","targets":[{"scope":"host","target":"a"},{"scope":"x"}]}`:                                  "targets[1]: target has 0 bytes",
		`{"id":"a","targets":[` + strings.Repeat(`{},`, MaxPurges) + `{}]}`:                                   "targets has 101 entries",
		`{"id":"a","targets":[{"scope":"every","target":"a"}]}`:                                               `scope "every" is not known`,
		`{"id":"a","targets":[{"scope":"host","target":"a"}],"by":"` + strings.Repeat("x", MaxWords+1) + `"}`: "256",
	} {
		_, err := Decode[PurgeRequest]([]byte(data))
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	_, err := Decode[PurgeReply]([]byte(`{"warning":"` + strings.Repeat("x", MaxWords+1) + `"}`))
	require.ErrorIs(t, err, ErrInvalid)
}

func FuzzDecodePurgeRequest(f *testing.F) { fuzzText[PurgeRequest](f) }
func FuzzDecodePurgeReply(f *testing.F)   { fuzzText[PurgeReply](f) }

func FuzzPurgeTarget(f *testing.F) {
	f.Add("url", "https://example.org/a?b")
	f.Add("prefix", "http://[::1]:80")
	f.Add("host", "example.org:8443")
	f.Add("host", "a%2fb")
	f.Fuzz(func(t *testing.T, scope, target string) {
		name, prefix, err := PurgeTarget{PurgeScope(scope), target}.Resources()
		if err != nil {
			return
		}
		host, _, ok := strings.Cut(name, "/")
		require.True(t, ok, "every name has a path")
		require.NotEmpty(t, host)
		require.Equal(t, strings.ToLower(host), host)
		require.Equal(t, scope != "url", prefix)
		again, _, err := PurgeTarget{PurgeURL, "http://" + name}.Resources()
		require.NoError(t, err)
		if !strings.HasSuffix(host, ":80") {
			require.Equal(t, name, again)
		}
	})
}
