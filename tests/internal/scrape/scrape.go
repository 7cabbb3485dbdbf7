// Package scrape reads what a service tells operators: its metrics and its
// readiness.
package scrape

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Metrics are the samples of one scrape, by series as the service wrote it,
// such as ccnq_requests_total{status="2xx",verdict="proxied"}.
type Metrics map[string]float64

// Get reads the metrics of the service whose admin listener is at base, such
// as http://127.0.0.1:9180. It fails the test if the service does not answer.
func Get(t testing.TB, base string) Metrics {
	t.Helper()
	status, body := fetch(t, base+"/metrics")
	require.Equal(t, http.StatusOK, status)
	m := Metrics{}
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		require.Positive(t, end, "not a sample: %s", line)
		value, err := strconv.ParseFloat(line[end+1:], 64)
		require.NoError(t, err, "not a sample: %s", line)
		m[line[:end]] = value
	}
	return m
}

// Sum adds up the series of one name whose labels contain every one of the
// given label="value" pairs.
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
next:
	for series, value := range m {
		if Name(series) != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue next
			}
		}
		sum += value
	}
	return sum
}

// Value returns the only series of a name, which must exist.
func (m Metrics) Value(t testing.TB, name string) float64 {
	t.Helper()
	value, ok := m[name]
	require.True(t, ok, "no metric %s", name)
	return value
}

// Name returns a series without its labels.
func Name(series string) string {
	name, _, _ := strings.Cut(series, "{")
	return name
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Status int
	Ready  bool
	// Parts says of each part whether it is well.
	Parts map[string]string
}

// Ready asks a service whether it is ready. ok is false if it does not answer.
func Ready(t testing.TB, base string) (r Readiness, ok bool) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/readyz", nil)
	require.NoError(t, err)
	status, body, err := do(req)
	if err != nil {
		return Readiness{}, false
	}
	require.NoError(t, json.Unmarshal([]byte(body), &r), body)
	r.Status = status
	return r, true
}

func fetch(t testing.TB, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	status, body, err := do(req)
	require.NoError(t, err)
	return status, body
}

// transport keeps no connection, so that nothing is left when a test ends.
var transport = &http.Transport{DisableKeepAlives: true}

func do(req *http.Request) (int, string, error) {
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read %s: %w", req.URL, err)
	}
	return resp.StatusCode, string(body), nil
}
