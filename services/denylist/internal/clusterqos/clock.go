package clusterqos

import (
	"sync"
	"time"
)

// clockPeriod is how long an observation is heeded at least; after two periods it is
// forgotten, so that the estimate follows a server whose clock was set back.
const clockPeriod = 10 * time.Second

// clock estimates the time on the server from times that it stamped. A stamp is
// seen a little later than it was made, so the observation that is furthest ahead
// of this process' clock is the best. It is safe for concurrent use.
type clock struct {
	local func() time.Time // monotonic

	mu           sync.Mutex
	ahead        time.Duration // most in this period
	before       time.Duration // and in the one before
	known, older bool
	began        time.Time // of the period, local
}

func newClock() *clock { return &clock{local: time.Now} }

// observe takes a time that the server stamped not long ago.
func (c *clock) observe(server time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.local()
	ahead := server.Sub(now)
	if c.known && now.Sub(c.began) >= clockPeriod {
		c.before, c.older = c.ahead, now.Sub(c.began) < 2*clockPeriod
		c.known = false
	}
	if !c.known {
		c.ahead, c.known, c.began = ahead, true, now
		return
	}
	c.ahead = max(c.ahead, ahead)
}

// now is the time on the server; false if nothing is known of it.
func (c *clock) now() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Time{}, false
	}
	ahead := c.ahead
	if c.older {
		ahead = max(ahead, c.before)
	}
	return c.local().Add(ahead), true
}
