package lead

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// length is how long a term lasts that is not renewed. With pause it
	// makes the bound of a takeover: five seconds.
	length = 4 * time.Second
	renew  = time.Second
	// pause is the time between two attempts to become the leader.
	pause = 500 * time.Millisecond
	// callTimeout bounds one call of the store.
	callTimeout = 2 * time.Second
	// prepareTimeout bounds one attempt to make the store usable. Migrations
	// wait for each other, see package db.
	prepareTimeout = 2 * time.Minute
)

// Lease is what decides who leads.
type Lease interface {
	// Lead makes holder the leader for length from now, or renews that, unless
	// another holder leads. The epoch grows whenever the holder changes.
	Lead(ctx context.Context, holder string, length time.Duration) (epoch int64, ok bool, err error)
	// Resign ends the leadership of the epoch at once, if it is the current one.
	Resign(ctx context.Context, epoch int64) error
}

// Options say who campaigns, and for what.
type Options struct {
	// Name tells the metrics of this leadership from those of others.
	Name  string
	Lease Lease
	// Holder is unique for this process.
	Holder string
	// Eligible says whether the process can do the work at all.
	Eligible func() bool
	// Ping finds out whether the store can be reached, while the process is not
	// eligible.
	Ping func(context.Context) error
	// Prepare makes the store usable, at first and after each failure; it fails
	// while the store is away. Nil means that nothing has to be done.
	Prepare func(context.Context) error
	// Work does the leader's work until its context ends. If it returns before,
	// the term ends.
	Work     func(context.Context, *Term)
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Term is one time of leadership. It is safe for concurrent use.
type Term struct {
	// Epoch is what the store knows the term by.
	Epoch int64

	begun time.Time
	until atomic.Int64 // since begun
}

// Valid reports whether the term lasts, as far as this process can know. A
// process that was frozen for too long sees false.
func (t *Term) Valid() bool { return int64(time.Since(t.begun)) < t.until.Load() }

// extend makes the term last for its length from the time at which the store
// was asked.
func (t *Term) extend(asked time.Time) { t.until.Store(int64(asked.Sub(t.begun) + length)) }

// Candidate is this process in the campaign. Make one with [New].
type Candidate struct {
	opts  Options
	up    atomic.Bool
	leads atomic.Bool
	terms prometheus.Counter

	// For Run alone.
	prepared bool
	last     string // error that was logged last
}

// New returns a candidate that does nothing yet.
func New(opts Options) *Candidate {
	c := &Candidate{opts: opts, terms: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ccnq_" + opts.Name + "_terms_total",
		Help: "How often this process became the leader.",
	})}
	flag := func(name, help string, value *atomic.Bool) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ccnq_" + opts.Name + name, Help: help}, func() float64 {
			if value.Load() {
				return 1
			}
			return 0
		})
	}
	opts.Registry.MustRegister(c.terms,
		flag("_leader", "1 while this process leads.", &c.leads),
		flag("_store_up", "1 while the store that decides who leads can be reached.", &c.up))
	return c
}

// Up reports whether the store answered when it was asked last.
func (c *Candidate) Up() bool { return c.up.Load() }

// Leads reports whether this process leads.
func (c *Candidate) Leads() bool { return c.leads.Load() }

// Run campaigns and works until ctx ends, and then resigns.
func (c *Candidate) Run(ctx context.Context) {
	for ctx.Err() == nil {
		c.campaign(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// campaign makes one attempt to lead, and leads if it succeeds.
func (c *Candidate) campaign(ctx context.Context) {
	if !c.prepared && c.opts.Prepare != nil {
		prepare, cancel := context.WithTimeout(ctx, prepareTimeout)
		defer cancel()
		if !c.judge(ctx, c.opts.Prepare(prepare)) {
			return
		}
	}
	c.prepared = true
	if !c.opts.Eligible() {
		c.judge(ctx, c.ping(ctx))
		return
	}
	asked := time.Now()
	epoch, ok, err := c.ask(ctx)
	if c.judge(ctx, err) && ok {
		c.lead(ctx, epoch, asked)
	}
}

func (c *Candidate) ask(ctx context.Context) (int64, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.opts.Lease.Lead(ctx, c.opts.Holder, length)
}

func (c *Candidate) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.opts.Ping(ctx)
}

// judge draws the conclusion from the result of a call, and reports whether
// the store is up.
func (c *Candidate) judge(ctx context.Context, err error) bool {
	switch {
	case err == nil:
		if !c.up.Swap(true) {
			c.opts.Logger.Info("the store answers")
		}
		c.last = ""
		return true
	case ctx.Err() != nil:
		return false
	}
	c.up.Store(false)
	c.prepared = false
	if text := err.Error(); text != c.last {
		c.last = text
		c.opts.Logger.Warn("the store cannot be used; trying on", "error", err)
	}
	return false
}

// lead works until the term ends.
func (c *Candidate) lead(ctx context.Context, epoch int64, asked time.Time) {
	term := &Term{Epoch: epoch, begun: asked}
	term.extend(asked)
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	c.terms.Inc()
	c.leads.Store(true)
	c.opts.Logger.Info("this process leads", "epoch", epoch)
	go func() {
		defer close(done)
		c.opts.Work(working, term)
	}()
	c.hold(ctx, term, done)
	cancel()
	<-done
	c.leads.Store(false)
	c.opts.Logger.Info("this process leads no more", "epoch", epoch)
	resign, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	// If it fails, the others wait for the end of the term.
	_ = c.opts.Lease.Resign(resign, epoch)
}

// hold renews the term until it must end.
func (c *Candidate) hold(ctx context.Context, term *Term, done <-chan struct{}) {
	tick := time.NewTicker(renew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-tick.C:
		}
		if !c.opts.Eligible() {
			return
		}
		asked := time.Now()
		epoch, ok, err := c.ask(ctx)
		switch {
		case err != nil:
			c.judge(ctx, err)
			if !term.Valid() {
				return
			}
		case !ok || epoch != term.Epoch:
			return
		default:
			c.judge(ctx, nil)
			term.extend(asked)
		}
	}
}
