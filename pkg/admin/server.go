package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/ccnq/ccnq/pkg/config"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of the listener. The time to write leaves room for a profile of 30
// seconds, the default of pprof.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = time.Minute
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
	// maxScrapes bounds the requests of /metrics that are answered at once.
	maxScrapes = 4
)

// Options are what a [Server] needs.
type Options struct {
	// Addr is where to listen; off means that there is no listener.
	Addr config.Addr
	// Checks are the parts that /readyz names.
	Checks Checks
	// Fail is told when the listener breaks after Start. Optional.
	Fail func(error)
	// Log gets errors of the listener.
	Log *slog.Logger
	// Pprof adds /debug/pprof/.
	Pprof bool
	// Registry has the metrics.
	Registry *prometheus.Registry
	// Routes are what the service answers besides, by patterns of [http.ServeMux].
	// Optional.
	Routes map[string]http.Handler
}

// Server is the admin listener. It is started once and stopped once; its
// methods are safe for concurrent use after Start has returned.
type Server struct {
	options  Options
	http     *http.Server
	listener net.Listener
	served   chan struct{}
}

// NewRegistry returns a registry of its own, apart from Prometheus' global one,
// with the metrics of the Go runtime, the process and the build.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewBuildInfoCollector(),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// New returns a server that does not listen yet.
func New(options Options) *Server {
	return &Server{
		options: options,
		http: &http.Server{
			ErrorLog:          slog.NewLogLogger(options.Log.Handler(), slog.LevelWarn),
			Handler:           handler(options),
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
		},
		served: make(chan struct{}),
	}
}

func handler(options Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(options.Registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            slog.NewLogLogger(options.Log.Handler(), slog.LevelError),
		MaxRequestsInFlight: maxScrapes,
		Registry:            options.Registry,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte("ok\n")) // the client may be gone
	})
	mux.Handle("GET /readyz", options.Checks)
	for pattern, handler := range options.Routes {
		mux.Handle(pattern, handler)
	}
	if options.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// Start listens and returns; the error says why it cannot.
func (s *Server) Start(ctx context.Context) error {
	if s.options.Addr.Off() {
		return nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", string(s.options.Addr))
	if err != nil {
		return fmt.Errorf("admin listener: %w", err)
	}
	s.listener = listener
	s.options.Log.Info("admin listener", "addr", listener.Addr().String())
	go func() {
		defer close(s.served)
		err := s.http.Serve(listener)
		if !errors.Is(err, http.ErrServerClosed) && s.options.Fail != nil {
			s.options.Fail(fmt.Errorf("admin listener: %w", err))
		}
	}()
	return nil
}

// Addr returns the address that the server listens on, or nil if it does not.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Stop ends the listener. Requests that are being answered may finish until ctx
// ends. It may be called before Start and more than once.
func (s *Server) Stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("admin listener: %w", err), s.http.Close())
	}
	if s.listener != nil {
		<-s.served
	}
	return err
}
