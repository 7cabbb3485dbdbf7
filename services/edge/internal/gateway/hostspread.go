package gateway

import (
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

const (
	// One request in hostSample is looked at; of hostWindow such, all but
	// hostOthers to two hosts show that the edge serves one site.
	hostSample = 16
	hostWindow = 256
	hostOthers = 12
	// hostWarnEvery is the time between two warnings.
	hostWarnEvery = time.Hour
)

// HostSpread notices when all requests go to one or two hosts. With limits per
// host that were made for many, these are then the limits of the whole site.
type HostSpread struct {
	logger *slog.Logger
	rate   float64

	mu     sync.Mutex
	first  string
	second string
	seen   int
	others int
	warned time.Time
}

// NewHostSpread warns through logger. Rate is the limit of one host, in requests
// per second.
func NewHostSpread(logger *slog.Logger, rate float64) *HostSpread {
	return &HostSpread{logger: logger, rate: rate}
}

// see takes the host of a request as the limiter counts it: one site may be asked for
// with and without its port, in upper case and as www.
func (s *HostSpread) see(host string, at time.Time) {
	if s != nil && rand.Uint32()%hostSample == 0 {
		s.sample(host, at)
	}
}

// sample counts one request. The hosts of a window are the first two in it: where
// there are many, most requests go to others.
func (s *HostSpread) sample(host string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.seen == 0:
		s.first, s.second, s.others = strings.Clone(host), "", 0
	case host == s.first || host == s.second:
	case s.second == "":
		s.second = strings.Clone(host)
	default:
		s.others++
	}
	if s.seen++; s.seen < hostWindow {
		return
	}
	s.seen = 0
	if s.others > hostOthers || !s.warned.IsZero() && at.Sub(s.warned) < hostWarnEvery {
		return
	}
	s.warned = at
	s.logger.Warn("nearly all requests go to one or two hosts, so the default limit of a host is that of the whole site: "+
		"set CCNQ_QOS_MIN_HOST_RATE and CCNQ_QOS_MAX_HOST_RATE to what the site can take, or the first to 0 for no such limit",
		"host", s.first, "second_host", s.second, "requests_per_second", s.rate)
}
