package admin

import (
	"io"
	"log/slog"

	"github.com/ccnq/ccnq/pkg/config"
)

// NewLogger returns a logger that writes one JSON object in a line, from level
// on. The levels have the seed's names, TRACE and FATAL among them. It is safe
// for concurrent use; w gets one Write for each line.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level:       level,
		ReplaceAttr: nameLevel,
	}))
}

// nameLevel gives trace and fatal their names.
func nameLevel(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey {
		if level, ok := a.Value.Any().(slog.Level); ok {
			a.Value = slog.StringValue(config.Level(level).String())
		}
	}
	return a
}
