package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
)

// logAccess writes one line for one request.
func (g *Gateway) logAccess(x *exchange) {
	attrs := make([]slog.Attr, 0, 14)
	attrs = append(attrs,
		slog.String("client", x.client.String()),
		slog.String("method", x.r.Method),
		slog.String("host", x.r.Host),
		slog.String("path", x.r.URL.Path),
		slog.Int("status", x.status),
		slog.String("verdict", string(x.reason)),
		slog.Duration("took", time.Since(x.arrived)),
		slog.String("agent", x.r.UserAgent()),
	)
	if x.cached != "" {
		attrs = append(attrs, slog.String("cache", string(x.cached)))
	}
	if x.throttled != qos.Pass {
		attrs = append(attrs, slog.String("qos", string(x.throttled)))
	}
	if x.queue.Waited > 0 {
		attrs = append(attrs, slog.Duration("waited", x.queue.Waited))
	}
	if x.reference != "" {
		attrs = append(attrs, slog.String("reference", x.reference))
	}
	if x.origin.Err != nil {
		attrs = append(attrs, slog.String("error", x.origin.Err.Error()))
	}
	g.opts.Logger.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}

// maxRefusalLines is the number of refusals that are logged in one second. A
// flood must not be able to fill the disk.
const maxRefusalLines = 100

// refusalLog writes a line for a refusal, so that the reference that a client
// quotes can be found, and counts what it leaves out.
type refusalLog struct {
	logger *slog.Logger

	mu      sync.Mutex
	second  int64
	lines   int
	dropped int
}

func newRefusalLog(logger *slog.Logger) *refusalLog { return &refusalLog{logger: logger} }

func (l *refusalLog) log(x *exchange) {
	now := x.arrived.Unix()
	l.mu.Lock()
	dropped := 0
	if now != l.second {
		dropped = l.dropped
		l.second, l.lines, l.dropped = now, 0, 0
	}
	l.lines++
	wanted := l.lines <= maxRefusalLines
	if !wanted {
		l.dropped++
	}
	l.mu.Unlock()
	if dropped > 0 {
		l.logger.Warn("more requests were refused than are logged", "left_out", dropped)
	}
	if wanted {
		l.logger.LogAttrs(context.Background(), slog.LevelInfo, "refused",
			slog.String("client", x.client.String()),
			slog.String("group", x.group.String()),
			slog.String("verdict", string(x.reason)),
			slog.Int("status", x.status),
			slog.String("method", x.r.Method),
			slog.String("path", x.r.URL.Path),
			slog.String("reference", x.reference),
		)
	}
}
