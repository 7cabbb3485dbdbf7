package qos

import "time"

// Tracked is how many keys of a kind are remembered now: at most
// Options.HistorySize, and as many more as decisions are under way.
func (l *Limiter) Tracked(kind Kind) int {
	switch kind {
	case Host:
		return int(l.hosts.count.Load())
	case IP:
		return int(l.ips.count.Load())
	case Subnet:
		return int(l.subnets.count.Load())
	default:
		return 0
	}
}

// Lag is the lag that decisions are made with now.
func (l *Limiter) Lag() time.Duration { return l.lag.Lag() }
