package qos

import (
	"fmt"
	"math"
	"net/http"
	"time"
)

// Options configure a [Limiter]. The zero value has the defaults of
// connect-qos. A field whose default is not zero is a pointer, so that zero can
// be asked for: &qos.Options{MinHostRate: new(0.0)} switches the host limit off.
//
// A rate is in requests per second. Of a pair, Max is the limit while the lag is
// at most MinLag, and Min the limit once it is at least MaxLag; between the two
// it falls in a straight line. A pair whose Min is 0 is off.
type Options struct {
	// MinLag and MaxLag are the lag at which limits begin to tighten, and the lag
	// at which they are tightest. Default 70 ms and 300 ms. Those suit the event
	// loop of Node: the sources of this package show less for the same load.
	MinLag, MaxLag *time.Duration

	// MinHostRate and MaxHostRate limit one host. Default 20 and 40.
	MinHostRate, MaxHostRate *float64
	// MinIPRate and MaxIPRate limit one client address. Default 0: off.
	MinIPRate, MaxIPRate float64
	// MinSubnetRate and MaxSubnetRate limit one subnet. Default 0: off.
	MinSubnetRate, MaxSubnetRate float64
	// SubnetMaskBits is the length of the prefix that makes a subnet of an IPv4
	// address, 20 to 30. Default 24. An IPv6 subnet is a /64.
	SubnetMaskBits *int
	// MinSubnetUniqueIPs is how many addresses of an IPv4 subnet must have been
	// tracked within MaxAge before the subnet can be bad, so that one address is
	// no reason to refuse its neighbours. Between 0 and 1 it is a share of the
	// addresses of the subnet, rounded up (0.5 of a /24 is 128); from 1 on it is a
	// number, rounded to the nearest. 1 lets the rate alone decide, and a number
	// above the addresses of a subnet lets no subnet be bad. Default 0.5, and 1
	// with Compat. It costs up to 4 bytes per address of each tracked subnet.
	MinSubnetUniqueIPs *float64

	// MaxHostRatio is the share of all requests that one host may have, judged
	// each time MaxHostRatio * 1000 requests came within a minute. Default 0: off.
	// It is clamped to 0..0.9.
	MaxHostRatio float64
	// MaxIPRateHostViolation softens a violation of MaxHostRatio: instead of every
	// request to the host, those of addresses above this rate are refused.
	// It needs MinIPRate: while addresses are not tracked, it lets the violation
	// have no effect at all, as in connect-qos. Default 0: none.
	MaxIPRateHostViolation float64
	// MaxSubnetRateHostViolation is the same for subnets, and needs MinSubnetRate.
	MaxSubnetRateHostViolation float64

	// HistorySize is how many hosts, how many addresses and how many subnets are
	// remembered; those used longest ago are forgotten first. At least 1. Default
	// 200, which a client that changes its address soon has replaced: size it to
	// the traffic. A key costs less than 1 KiB at 40 requests a second over 10 s.
	HistorySize *int
	// MaxAge is how far back requests count. At least 1 ms. Default 10 s.
	MaxAge *time.Duration

	// HostWhitelist names hosts that are never refused nor tracked. Default
	// localhost; an empty list that is not nil names none.
	HostWhitelist []string
	// IPWhitelist names client addresses that are never refused nor tracked.
	IPWhitelist []string
	// SubnetWhitelist names subnets that are never bad: by an address of theirs, or
	// in CIDR notation with exactly the length of a subnet. Their requests are
	// still judged by host and address.
	SubnetWhitelist []string

	// HTTPBehindProxy and HTTPSBehindProxy say that plain or TLS requests come
	// through a proxy, so that X-Forwarded-For names the client.
	HTTPBehindProxy, HTTPSBehindProxy bool
	// TrustedHops is how many proxies in front add to X-Forwarded-For: 1 takes
	// the last address of it, 2 the one before. With fewer addresses the peer's is
	// used. Default 0 takes the first address, as connect-qos does: the client
	// can write there what it likes. At most 100.
	TrustedHops int

	// ErrorStatusCode is the status of a refusal, 200 to 999. Default 503.
	ErrorStatusCode *int
	// ErrorResponseDelay is how long the answer to a refused request is held back.
	// Default 0. See [Limiter.Middleware].
	ErrorResponseDelay time.Duration
	// DestroySocket closes the connection of a refused request. Default true. Set
	// it to false where connections carry requests of several clients, as those
	// of a proxy do.
	DestroySocket *bool
	// BeforeThrottle is called before a request is refused. If it returns false,
	// the request proceeds, and is not tracked. It may be called by several
	// goroutines at once.
	BeforeThrottle func(l *Limiter, r *http.Request, reason Reason) bool

	// Cluster makes several nodes count together. Default: none.
	Cluster *ClusterOptions

	// Compat gives the decisions of connect-qos 5.7.0, its defects included. See
	// the package documentation.
	Compat bool

	// Lag tells how busy the process is. Default: a [Meter] made with
	// [NewSchedulerLag], which Close stops. A given one is left to its owner.
	Lag Lag
	// Now is the clock, for tests. Default: the monotonic clock.
	Now func() time.Time
}

// An OptionError says which option is wrong.
type OptionError struct {
	Option  string // the field of Options, such as "MinLag"
	Problem string // the offending value and what is wrong with it
}

// Error implements error.
func (e *OptionError) Error() string { return "qos: " + e.Option + " " + e.Problem }

// settings are options with the defaults filled in.
type settings struct {
	minLag, maxLag          float64 // ms
	host, ip, subnet        rates
	maskBits                int
	uniqueIPs               float64
	hostRatio               float64
	overrides               overrides
	historySize             int
	maxAge                  float64 // ms
	hosts, ips, subnets     []string
	httpProxied, tlsProxied bool
	trustedHops             int
	status                  int
	delay                   time.Duration
	destroySocket           bool
	compat                  bool
	cluster                 *clusterSettings // nil if there is none
}

// highest is the highest override of the limiter and of its cluster.
func (s *settings) highest() overrides {
	o := s.overrides
	if s.cluster != nil {
		o.ip, o.subnet = max(o.ip, s.cluster.overrides.ip), max(o.subnet, s.cluster.overrides.subnet)
	}
	return o
}

// or is *p, or the default.
func or[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// settings fills in the defaults.
func (o *Options) settings() settings {
	s := settings{
		minLag:        millis(or(o.MinLag, 70*time.Millisecond)),
		maxLag:        millis(or(o.MaxLag, 300*time.Millisecond)),
		host:          rates{or(o.MinHostRate, 20), or(o.MaxHostRate, 40)},
		ip:            rates{o.MinIPRate, o.MaxIPRate},
		subnet:        rates{o.MinSubnetRate, o.MaxSubnetRate},
		maskBits:      or(o.SubnetMaskBits, 24),
		hostRatio:     min(max(o.MaxHostRatio, 0), 0.9),
		overrides:     overrides{o.MaxIPRateHostViolation, o.MaxSubnetRateHostViolation},
		historySize:   or(o.HistorySize, 200),
		maxAge:        millis(or(o.MaxAge, 10*time.Second)),
		hosts:         o.HostWhitelist,
		ips:           o.IPWhitelist,
		subnets:       o.SubnetWhitelist,
		httpProxied:   o.HTTPBehindProxy,
		tlsProxied:    o.HTTPSBehindProxy,
		trustedHops:   o.TrustedHops,
		status:        or(o.ErrorStatusCode, http.StatusServiceUnavailable),
		delay:         o.ErrorResponseDelay,
		destroySocket: or(o.DestroySocket, true),
		compat:        o.Compat,
		uniqueIPs:     uniqueIPs(o.MinSubnetUniqueIPs, o.Compat),
	}
	if s.hosts == nil {
		s.hosts = []string{"localhost"}
	}
	if o.Cluster != nil {
		s.cluster = o.Cluster.settings(&s)
	}
	return s
}

// uniqueIPs is what is given for MinSubnetUniqueIPs, or the default.
func uniqueIPs(given *float64, compat bool) float64 {
	if compat {
		return or(given, 1)
	}
	return or(given, 0.5)
}

func optionError(option, format string, args ...any) error {
	return &OptionError{Option: option, Problem: fmt.Sprintf(format, args...)}
}

// validate returns an *OptionError for the first thing that is wrong: what
// connect-qos checks in its order, then what it does not.
func (s *settings) validate() error {
	switch {
	case s.maskBits < 20 || s.maskBits > 30:
		return optionError("SubnetMaskBits", "%d is not in 20..30", s.maskBits)
	case s.minLag >= s.maxLag:
		return optionError("MinLag", "%v ms is not less than MaxLag %v ms", s.minLag, s.maxLag)
	case s.host.min > s.host.max:
		return optionError("MinHostRate", "%v is greater than MaxHostRate %v", s.host.min, s.host.max)
	case s.ip.min > s.ip.max:
		return optionError("MinIPRate", "%v is greater than MaxIPRate %v", s.ip.min, s.ip.max)
	case s.subnet.min > s.subnet.max:
		return optionError("MinSubnetRate", "%v is greater than MaxSubnetRate %v", s.subnet.min, s.subnet.max)
	case s.historySize < 1:
		return optionError("HistorySize", "%d is not a positive number", s.historySize)
	}
	numbers := []struct {
		option string
		value  float64
	}{
		{"MinHostRate", s.host.min}, {"MaxHostRate", s.host.max},
		{"MinIPRate", s.ip.min}, {"MaxIPRate", s.ip.max},
		{"MinSubnetRate", s.subnet.min}, {"MaxSubnetRate", s.subnet.max},
		{"MaxHostRatio", s.hostRatio},
		{"MaxIPRateHostViolation", s.overrides.ip}, {"MaxSubnetRateHostViolation", s.overrides.subnet},
	}
	for _, n := range numbers {
		if math.IsNaN(n.value) || math.IsInf(n.value, 0) {
			return optionError(n.option, "%v is not a finite number", n.value)
		}
		if n.value < 0 && !s.compat {
			return optionError(n.option, "%v is negative", n.value)
		}
	}
	switch {
	case !(s.uniqueIPs > 0) || math.IsInf(s.uniqueIPs, 0):
		return optionError("MinSubnetUniqueIPs", "%v is not a positive number", s.uniqueIPs)
	case s.trustedHops < 0 || s.trustedHops > maxTrustedHops:
		return optionError("TrustedHops", "%d is not in 0..%d", s.trustedHops, maxTrustedHops)
	case s.compat:
	case s.maxAge < 1:
		return optionError("MaxAge", "%v ms is less than 1 ms", s.maxAge)
	case !sendable(s.status):
		return optionError("ErrorStatusCode", "%d is not in 200..999", s.status)
	case s.delay < 0:
		return optionError("ErrorResponseDelay", "%v is negative", s.delay)
	}
	if s.cluster != nil {
		return s.cluster.validate()
	}
	return nil
}

// sendable reports whether net/http can send the status as a final one.
func sendable(status int) bool { return status >= 200 && status <= 999 }

// RequiredIPs is how many addresses an IPv4 subnet with a prefix of maskBits must
// show before it can be bad, by Options.MinSubnetUniqueIPs.
func RequiredIPs(uniqueIPs float64, maskBits int) int {
	if uniqueIPs < 1 {
		return int(math.Ceil(uniqueIPs * float64(int(1)<<(32-maskBits))))
	}
	return int(math.Round(min(uniqueIPs, math.MaxInt32)))
}

// lagRatio is how far limits are tightened at a lag in ms: 0 not at all, 1 fully.
func (s *settings) lagRatio(lag float64) float64 {
	if lag <= s.minLag {
		return 0
	}
	return min(1, (lag-s.minLag)/(s.maxLag-s.minLag))
}
