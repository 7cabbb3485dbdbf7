package projector

import (
	"log/slog"
	"time"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// asidePause is the time between two lines of the log about messages that were
// moved aside: whoever sends them decides how many there are.
const asidePause = time.Second

// asideLog logs how many messages were moved aside, and the first of them. It is
// not safe for concurrent use.
type asideLog struct {
	logger *slog.Logger
	told   time.Time
	count  int // since then
	first  store.Quarantined
}

// add counts messages that were moved aside.
func (l *asideLog) add(moved []store.Quarantined) {
	if len(moved) == 0 {
		return
	}
	if l.count == 0 {
		l.first = moved[0]
	}
	l.count += len(moved)
	l.tell()
}

// tell logs what was counted, unless that was done a moment ago.
func (l *asideLog) tell() {
	if time.Since(l.told) >= asidePause {
		l.flush()
	}
}

// flush logs what was counted.
func (l *asideLog) flush() {
	if l.count == 0 {
		return
	}
	l.logger.Warn("events moved aside", "count", l.count, "seq", l.first.Seq, "subject", l.first.Subject, "why", l.first.Why)
	l.told, l.count, l.first = time.Now(), 0, store.Quarantined{}
}
