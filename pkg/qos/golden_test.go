package qos

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// goldenDir holds recordings of connect-qos 5.7.0. CCNQ_GOLDEN_DIR names another
// folder with files of the same format, which need not have every kind of them.
func goldenDir() (dir string, whole bool) {
	if dir := os.Getenv("CCNQ_GOLDEN_DIR"); dir != "" {
		return dir, false
	}
	return filepath.Join("testdata", "golden"), true
}

// The kinds of files that are not scenarios begin with these.
const (
	hostKeyFiles    = "fn_host_key_"
	subnetKeyFiles  = "fn_subnet_key_"
	clientIPFiles   = "fn_client_ip_"
	lagRatioFiles   = "fn_lag_ratio_"
	lagMeterFiles   = "lag_meter_"
	validationFiles = "options_validation_"
	middlewareFiles = "middleware_"
)

// isScenario reports whether a file is of no other kind.
func isScenario(name string) bool {
	for _, prefix := range []string{
		hostKeyFiles, subnetKeyFiles, clientIPFiles, lagRatioFiles, lagMeterFiles, validationFiles, middlewareFiles,
	} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return true
}

// goldenFiles are the files whose names begin with a prefix, by name.
func goldenFiles(t *testing.T, prefix string) map[string][]byte {
	t.Helper()
	dir, _ := goldenDir()
	paths, err := filepath.Glob(filepath.Join(dir, prefix+"*.json"))
	require.NoError(t, err)
	files := make(map[string][]byte, len(paths))
	for _, path := range paths {
		files[strings.TrimSuffix(filepath.Base(path), ".json")], err = os.ReadFile(path)
		require.NoError(t, err)
	}
	return files
}

// readGolden decodes an array; a field that the test does not know is an error.
func readGolden[T any](t *testing.T, data []byte) []T {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var elements []T
	require.NoError(t, decoder.Decode(&elements))
	require.NotEmpty(t, elements)
	return elements
}

// eachGolden runs a test for every element of the files with a prefix.
func eachGolden[T any](t *testing.T, prefix string, test func(t *testing.T, element T)) {
	t.Helper()
	files := goldenFiles(t, prefix)
	if dir, whole := goldenDir(); whole {
		require.NotEmpty(t, files, "no file of that kind in %s", dir)
	}
	for name, data := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, element := range readGolden[T](t, data) {
				test(t, element)
			}
		})
	}
}

// textList is a string or an array of them.
type textList []string

func (l *textList) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = textList{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// wholeNumber is a number that Go has as an int. One that is not whole, which only an untyped
// language can be given, is 0, which is as wrong.
type wholeNumber int

func (w *wholeNumber) UnmarshalJSON(data []byte) error {
	var number float64
	if err := json.Unmarshal(data, &number); err != nil {
		return err
	}
	if *w = wholeNumber(number); float64(*w) != number {
		*w = 0
	}
	return nil
}

// goldenOptions are the options of connect-qos by their own names.
type goldenOptions struct {
	MinLag                     *float64     `json:"minLag"`
	MaxLag                     *float64     `json:"maxLag"`
	MinHostRate                *float64     `json:"minHostRate"`
	MaxHostRate                *float64     `json:"maxHostRate"`
	MinIPRate                  float64      `json:"minIpRate"`
	MaxIPRate                  float64      `json:"maxIpRate"`
	MinSubnetRate              float64      `json:"minSubnetRate"`
	MaxSubnetRate              float64      `json:"maxSubnetRate"`
	SubnetMaskBits             *wholeNumber `json:"subnetMaskBits"`
	MinSubnetUniqueIPs         *float64     `json:"minSubnetUniqueIps"`
	MaxHostRatio               float64      `json:"maxHostRatio"`
	MaxIPRateHostViolation     float64      `json:"maxIpRateHostViolation"`
	MaxSubnetRateHostViolation float64      `json:"maxSubnetRateHostViolation"`
	HistorySize                *wholeNumber `json:"historySize"`
	MaxAge                     *float64     `json:"maxAge"`
	HostWhitelist              []string     `json:"hostWhitelist"`
	IPWhitelist                []string     `json:"ipWhitelist"`
	SubnetWhitelist            []string     `json:"subnetWhitelist"`
	HTTPBehindProxy            bool         `json:"httpBehindProxy"`
	HTTPSBehindProxy           bool         `json:"httpsBehindProxy"`
	ErrorStatusCode            *wholeNumber `json:"errorStatusCode"`
	ErrorResponseDelay         float64      `json:"errorResponseDelay"`
}

func optionalDuration(ms *float64) *time.Duration {
	if ms == nil {
		return nil
	}
	return new(duration(*ms))
}

func (g goldenOptions) options() Options {
	return Options{
		MinLag: optionalDuration(g.MinLag), MaxLag: optionalDuration(g.MaxLag),
		MinHostRate: g.MinHostRate, MaxHostRate: g.MaxHostRate,
		MinIPRate: g.MinIPRate, MaxIPRate: g.MaxIPRate,
		MinSubnetRate: g.MinSubnetRate, MaxSubnetRate: g.MaxSubnetRate,
		SubnetMaskBits: (*int)(g.SubnetMaskBits), MinSubnetUniqueIPs: g.MinSubnetUniqueIPs,
		MaxHostRatio:               g.MaxHostRatio,
		MaxIPRateHostViolation:     g.MaxIPRateHostViolation,
		MaxSubnetRateHostViolation: g.MaxSubnetRateHostViolation,
		HistorySize:                (*int)(g.HistorySize), MaxAge: optionalDuration(g.MaxAge),
		HostWhitelist: g.HostWhitelist, IPWhitelist: g.IPWhitelist, SubnetWhitelist: g.SubnetWhitelist,
		HTTPBehindProxy: g.HTTPBehindProxy, HTTPSBehindProxy: g.HTTPSBehindProxy,
		ErrorStatusCode: (*int)(g.ErrorStatusCode), ErrorResponseDelay: duration(g.ErrorResponseDelay),
		Compat: true,
	}
}

// TestGoldenFilesAreThere: each of them has a kind, as what is of no other is a
// scenario, and there is one at least.
func TestGoldenFilesAreThere(t *testing.T) {
	t.Parallel()
	dir, _ := goldenDir()
	require.NotEmpty(t, goldenFiles(t, ""), "no file in %s", dir)
}

func TestGoldenHostKey(t *testing.T) {
	t.Parallel()
	type vector struct{ In, Out string }
	eachGolden(t, hostKeyFiles, func(t *testing.T, v vector) {
		t.Helper()
		require.Equal(t, v.Out, compatHostKey(v.In), "of %q", v.In)
	})
}

func TestGoldenSubnetKey(t *testing.T) {
	t.Parallel()
	type vector struct {
		IP    string
		Bits  *wholeNumber
		Out   string
		Error bool
	}
	eachGolden(t, subnetKeyFiles, func(t *testing.T, v vector) {
		t.Helper()
		_, err := New(Options{SubnetMaskBits: (*int)(v.Bits), Compat: true, Lag: &world{}})
		if v.Error {
			require.Error(t, err, "/%v", v.Bits)
			return
		}
		require.NoError(t, err)
		bits := or((*int)(v.Bits), 24)
		out, _, _ := compatSubnetKey(v.IP, bits)
		require.Equal(t, v.Out, out, "of %q/%d", v.IP, bits)
	})
}

func TestGoldenClientIP(t *testing.T) {
	t.Parallel()
	type vector struct {
		request
		Options goldenOptions
		Out     string
	}
	eachGolden(t, clientIPFiles, func(t *testing.T, v vector) {
		t.Helper()
		options := v.Options.options()
		s := options.settings()
		require.Equal(t, v.Out, s.compatClient(v.http()), "of %+v", v)
	})
}

func TestGoldenLagRatio(t *testing.T) {
	t.Parallel()
	type vector struct {
		Options goldenOptions
		Lag     float64 `json:"lag_ms"`
		Out     float64
	}
	eachGolden(t, lagRatioFiles, func(t *testing.T, v vector) {
		t.Helper()
		options := v.Options.options()
		s := options.settings()
		require.Equal(t, v.Out, s.lagRatio(v.Lag), "of %+v", v) //nolint:testifylint // equal to the last bit
	})
}

func TestGoldenLagMeter(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name      string
		Interval  float64 `json:"interval_ms"`
		Smoothing float64
		Steps     []struct {
			At  float64 `json:"tick_at_ms"`
			Lag float64
		}
	}
	eachGolden(t, lagMeterFiles, func(t *testing.T, v vector) {
		t.Helper()
		m, last := &Meter{}, 0.0
		for _, step := range v.Steps {
			m.observe(lateness(duration(step.At-last), duration(v.Interval)), v.Smoothing)
			require.Equal(t, duration(step.Lag), m.Lag(), "%s: at %v ms", v.Name, step.At)
			last = step.At
		}
	})
}

func TestGoldenOptionsValidation(t *testing.T) {
	t.Parallel()
	groups := map[string]string{
		"SubnetMaskBits": "subnetMaskBits", "MinLag": "lag", "MinHostRate": "hostRate", "MinIPRate": "ipRate",
		"MinSubnetRate": "subnetRate", "HistorySize": "historySize",
	}
	type effective struct {
		MinLag             float64  `json:"minLag"`
		MaxLag             float64  `json:"maxLag"`
		ErrorStatusCode    int      `json:"errorStatusCode"`
		ErrorResponseDelay float64  `json:"errorResponseDelay"`
		HTTPBehindProxy    bool     `json:"httpBehindProxy"`
		HTTPSBehindProxy   bool     `json:"httpsBehindProxy"`
		HistorySize        int      `json:"historySize"`
		MaxAge             float64  `json:"maxAge"`
		MinHostRate        float64  `json:"minHostRate"`
		MaxHostRate        float64  `json:"maxHostRate"`
		MaxHostRatio       float64  `json:"maxHostRatio"`
		MinIPRate          float64  `json:"minIpRate"`
		MaxIPRate          float64  `json:"maxIpRate"`
		MaxIPViolation     float64  `json:"maxIpRateHostViolation"`
		MinSubnetRate      float64  `json:"minSubnetRate"`
		MaxSubnetRate      float64  `json:"maxSubnetRate"`
		MaxSubnetViolation float64  `json:"maxSubnetRateHostViolation"`
		SubnetMaskBits     int      `json:"subnetMaskBits"`
		HostWhitelist      []string `json:"hostWhitelist"`
		IPWhitelist        []string `json:"ipWhitelist"`
		SubnetWhitelist    []string `json:"subnetWhitelist"`
	}
	type vector struct {
		Options goldenOptions
		Error   string
		OK      json.RawMessage // what connect-qos shows of the effective values
	}
	eachGolden(t, validationFiles, func(t *testing.T, v vector) {
		t.Helper()
		options := v.Options.options()
		options.Lag = &world{}
		l, err := New(options)
		if v.Error != "" {
			var wrong *OptionError
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, v.Error, groups[wrong.Option], "%+v", v.Options)
			return
		}
		require.NoError(t, err)
		list := func(entries []string) []string { return append([]string{}, entries...) }
		s := l.settings
		got := effective{
			MinLag: s.minLag, MaxLag: s.maxLag,
			ErrorStatusCode: s.status, ErrorResponseDelay: millis(s.delay),
			HTTPBehindProxy: s.httpProxied, HTTPSBehindProxy: s.tlsProxied,
			HistorySize: s.historySize, MaxAge: s.maxAge,
			MinHostRate: s.host.min, MaxHostRate: s.host.max, MaxHostRatio: s.hostRatio,
			MinIPRate: s.ip.min, MaxIPRate: s.ip.max, MaxIPViolation: s.overrides.ip,
			MinSubnetRate: s.subnet.min, MaxSubnetRate: s.subnet.max, MaxSubnetViolation: s.overrides.subnet,
			SubnetMaskBits: s.maskBits,
			HostWhitelist:  list(s.hosts), IPWhitelist: list(s.ips), SubnetWhitelist: list(s.subnets),
		}
		want := got
		want.HostWhitelist, want.IPWhitelist, want.SubnetWhitelist = nil, nil, nil
		decoder := json.NewDecoder(bytes.NewReader(v.OK))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&want))
		require.Equal(t, want, got, "%+v", v.Options)
	})
}
