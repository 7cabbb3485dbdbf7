package qos

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Reason says why a request is refused, in the words of connect-qos.
type Reason string

// The reasons. Pass is that of a request which is not refused.
const (
	Pass          Reason = ""
	BadHost       Reason = "badHost"       // its host is above its rate
	HostViolation Reason = "hostViolation" // its host has too large a share of all requests
	BadIP         Reason = "badIp"         // its client's address is above its rate
	BadSubnet     Reason = "badSubnet"     // the subnet of that address is above its rate
)

// Kind is what a query of [Limiter.IsBad] is about.
type Kind int

// The kinds of actor.
const (
	Host Kind = iota
	IP
	Subnet
)

// Limiter decides which requests to refuse. Make it with [New]. All methods are
// safe for concurrent use.
type Limiter struct {
	settings       settings
	beforeThrottle func(*Limiter, *http.Request, Reason) bool

	hosts, ips, subnets *table
	ratio               *ratio
	cluster             *member // nil if there is none
	clients             bool    // there is something that asks who a client is

	lag     Lag
	meter   *Meter // nil if lag is the caller's
	start   time.Time
	elapsed func() time.Duration // since start; nil is by the monotonic clock

	delayed   atomic.Int64
	closed    chan struct{}
	closeOnce sync.Once

	// Every decision changes uses and reads what is above: they are on two cache lines.
	_    [64]byte
	uses atomic.Uint64 // the stamps that tables evict by
	_    [64]byte
}

// New makes a limiter. It returns an *[OptionError] for the first option that is
// wrong. Unless a Lag is given, it starts a goroutine, and one for a Cluster; Close
// stops both.
func New(options Options) (*Limiter, error) {
	s := options.settings()
	if err := s.validate(); err != nil {
		return nil, err
	}
	lists, err := s.whitelists()
	if err != nil {
		return nil, err
	}
	l := &Limiter{
		settings:       s,
		beforeThrottle: options.BeforeThrottle,
		hosts:          newTable(&s, s.host, 0, lists.hosts),
		ips:            newTable(&s, s.ip, s.highest().ip, lists.ips),
		subnets:        newTable(&s, s.subnet, s.highest().subnet, lists.subnets),
		ratio:          newRatio(s.hostRatio, s.compat),
		lag:            options.Lag,
		closed:         make(chan struct{}),
	}
	l.subnets.uniqueIPs, l.subnets.addresses = RequiredIPs(s.uniqueIPs, s.maskBits), 1<<(32-s.maskBits)
	l.subnets.sighted = l.subnets.uniqueIPs > 1
	if now := options.Now; now != nil {
		start := now()
		l.elapsed = func() time.Duration { return now().Sub(start) }
	} else {
		l.start = time.Now()
	}
	if l.lag == nil {
		l.meter = NewSchedulerLag()
		l.lag = l.meter
	}
	l.clients = s.cluster != nil || l.ips.knows() || l.subnets.knows()
	if s.cluster != nil {
		l.cluster = join(l, options.Now)
	}
	return l, nil
}

// Close stops what New started, and answers the requests that ErrorResponseDelay
// holds back. Publishing to a cluster that is under way is finished first, for at
// most 10 s. Decisions may still be asked for. It may be called twice, and always
// returns nil.
func (l *Limiter) Close() error { return l.Shutdown(context.Background()) }

// Shutdown is Close that waits no longer than ctx lets it: then what is published is
// given up, the store's call ends by itself soon after, and the error is that of ctx.
func (l *Limiter) Shutdown(ctx context.Context) (err error) {
	l.closeOnce.Do(func() {
		close(l.closed)
		if l.meter != nil {
			_ = l.meter.Close()
		}
		if l.cluster != nil {
			err = l.cluster.leave(ctx)
		}
	})
	return err
}

// Decide says whether to refuse a request of the actor, and tracks it if not: a
// refused request counts nowhere.
func (l *Limiter) Decide(a Actor) Reason { return l.decide(&a) }

func (l *Limiter) decide(a *Actor) Reason {
	m := l.moment()

	// The processor can wait for the memory of both at once, since no lock is taken
	// in between.
	ip, subnet := l.ips.open(&a.ip), l.subnets.open(&a.subnet)
	ip.find(&a.ip)
	subnet.find(&a.subnet)
	badIP := ip.bad(m, l.ips.rates, false)
	badSubnet := subnet.bad(m, l.subnets.rates, a.numbered)
	// The host comes last: it is shared by the most requests, so it is locked for
	// the shortest time. The order of look-ups makes no difference to a decision.
	judged := &a.host
	if a.twice {
		judged = &a.judged
	}
	host := l.hosts.open(judged)
	host.find(judged)
	badHost := host.bad(m, l.hosts.rates, false)

	listed := host.listed || ip.listed
	if a.twice {
		host.close()
		host = l.hosts.open(&a.host)
		host.find(&a.host)
		listed = host.listed || ip.listed
	}

	reason, track := Pass, false
	remote := l.cluster.lists()
	switch {
	case listed:
	case badHost:
		reason = BadHost
	case in(remote.hosts, a.host) && l.violationHolds(m, l.settings.cluster.overrides, &ip, &subnet, a.numbered):
		reason = HostViolation
	case badIP:
		reason = BadIP
	case badSubnet:
		reason = BadSubnet
	case in(remote.ips, a.ip):
		reason = BadIP
	case in(remote.subnets, a.subnet) && !subnet.listed:
		reason = BadSubnet
	case l.ratio.violates(a.host.text, m.now) && l.violationHolds(m, l.settings.overrides, &ip, &subnet, a.numbered):
		reason = HostViolation
	default:
		track = true
		host.track(m, &a.host, -1)
	}
	name, owned := host.name(a.host.text)
	host.close()
	if track {
		ip.track(m, &a.ip, -1)
		subnet.track(m, &a.subnet, a.place())
	}
	subnet.close()
	ip.close()
	if track {
		l.ratio.track(name, owned, m.now)
		l.hosts.shrink()
		l.ips.shrink()
		l.subnets.shrink()
	}
	return reason
}

// violationHolds reports whether a request to a host in violation is refused: any
// is, unless an override picks those of fast addresses or subnets.
func (l *Limiter) violationHolds(m moment, o overrides, ip, subnet *cell, numbered bool) bool {
	if o.ip == 0 && o.subnet == 0 {
		return true
	}
	return o.ip != 0 && ip.bad(m, l.ips.rates.override(o.ip), false) ||
		o.subnet != 0 && subnet.bad(m, l.subnets.rates.override(o.subnet), numbered)
}

// IsBadHost reports whether a host is above its rate; host may have a port, as in
// a Host header. With track, a host that is not bad is tracked as if a request had
// come. A whitelisted one is neither bad nor tracked.
//
// Like IsBadIP and IsBadSubnet it can refuse a client before a request is read:
// before the TLS handshake, from tls.Config.GetConfigForClient. Do not track there
// what the middleware will track again.
func (l *Limiter) IsBadHost(host string, track bool) bool {
	return l.query(Host, l.keyOf(Host, host), track, -1)
}

// IsBadIP is IsBadHost for a client address, with or without a port.
func (l *Limiter) IsBadIP(ip string, track bool) bool {
	return l.query(IP, l.keyOf(IP, ip), track, -1)
}

// IsBadSubnet is IsBadHost for a subnet, named by any address within it. As no
// address is known that a request came from, the rate alone decides: see
// Options.MinSubnetUniqueIPs.
func (l *Limiter) IsBadSubnet(subnet string, track bool) bool {
	return l.query(Subnet, l.keyOf(Subnet, subnet), track, -1)
}

// keyOf is what a text is counted under.
func (l *Limiter) keyOf(kind Kind, text string) key {
	compat, maskBits := l.settings.compat, l.settings.maskBits
	switch {
	case kind == Host && compat:
		return textKey(compatHostKey(text))
	case kind == Host:
		return textKey(hostKey(text))
	case kind == IP && compat:
		return textKey(text)
	case kind == IP:
		return addrKey(parseAddr(text))
	case compat:
		subnet, _, _ := compatSubnetKey(text, maskBits)
		return textKey(subnet)
	}
	addr, err := parseSubnet(text, maskBits)
	if err != nil {
		return textKey(unknown)
	}
	k, _, _ := subnetKey(addr, maskBits)
	return k
}

// IsBad answers the same for the actor of a request. Here the addresses of a
// subnet count too.
func (l *Limiter) IsBad(kind Kind, a Actor, track bool) bool {
	switch kind {
	case Host:
		return l.query(Host, a.host, track, -1)
	case IP:
		return l.query(IP, a.ip, track, -1)
	case Subnet:
		return l.query(Subnet, a.subnet, track, a.place())
	default:
		return false
	}
}

// query looks up one key. place is that of who asks within the subnet, -1 if it is
// not known.
func (l *Limiter) query(kind Kind, k key, track bool, place int) bool {
	m, t := l.moment(), l.table(kind)
	c := t.open(&k)
	c.find(&k)
	bad := c.bad(m, t.rates, place >= 0)
	track = track && !bad && !c.listed
	if track {
		c.track(m, &k, place)
	}
	name, owned := c.name(k.text)
	c.close()
	if track {
		if kind == Host {
			l.ratio.track(name, owned, m.now)
		}
		t.shrink()
	}
	return bad
}

func (l *Limiter) table(kind Kind) *table {
	switch kind {
	case Host:
		return l.hosts
	case IP:
		return l.ips
	default:
		return l.subnets
	}
}

// moment reads the clock and the lag.
func (l *Limiter) moment() moment {
	var elapsed time.Duration
	if l.elapsed == nil {
		elapsed = time.Since(l.start)
	} else {
		elapsed = l.elapsed()
	}
	return moment{
		now:      elapsed.Milliseconds(),
		lagRatio: l.settings.lagRatio(millis(l.lag.Lag())),
		stamp:    l.uses.Add(2),
	}
}
