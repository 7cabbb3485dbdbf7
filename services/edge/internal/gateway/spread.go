package gateway

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// One request in spreadSample is looked at; of spreadWindow such, more
	// than half from one private address are a sign of a mistake.
	spreadSample = 16
	spreadWindow = 256
)

// spread notices when one private or loopback address makes most of the
// requests: then the edge most likely stands behind a proxy that it has not
// been told of, and takes all clients for one.
type spread struct {
	logger *slog.Logger
	gauge  prometheus.Gauge

	mu        sync.Mutex
	candidate netip.Addr // of a majority, by the Boyer-Moore vote
	votes     int
	hits      int // of the candidate since it became one
	seen      int
	warned    bool
}

func newSpread(logger *slog.Logger, r prometheus.Registerer) *spread {
	s := &spread{logger: logger, gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ccnq_one_private_client",
		Help: "1 while one private or loopback address makes most of the requests.",
	})}
	r.MustRegister(s.gauge)
	return s
}

func (s *spread) see(client netip.Addr) {
	if rand.Uint32()%spreadSample == 0 {
		s.sample(client)
	}
}

func (s *spread) sample(client netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	switch {
	case client == s.candidate:
		s.votes++
		s.hits++
	case s.votes == 0:
		s.candidate, s.votes, s.hits = client, 1, 1
	default:
		s.votes--
	}
	if s.seen < spreadWindow {
		return
	}
	alone := s.hits > spreadWindow/2 && (s.candidate.IsPrivate() || s.candidate.IsLoopback())
	s.seen, s.votes, s.hits = 0, 0, 0
	if !alone {
		s.gauge.Set(0)
		return
	}
	s.gauge.Set(1)
	if !s.warned {
		s.warned = true
		s.logger.Warn("most requests come from one private address, so all clients may be taken for one: "+
			"behind a proxy, set CCNQ_CLIENT_IP_HEADER and CCNQ_TRUSTED_PROXIES", "address", s.candidate.String())
	}
}
