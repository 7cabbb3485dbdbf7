package qos

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// storeWait bounds what a sync waits for a store to publish, so that Close ends, and
// then to read.
const storeWait = 10 * time.Second

// member is a limiter's part in its cluster.
type member struct {
	*clusterSettings
	limiter *Limiter
	now     func() time.Time // wall time
	blocked atomic.Pointer[blocked]

	node string // random

	mu           sync.Mutex // held by a sync
	batches      int64
	pending      *Batch // is to be published again
	uniqueWindow int64  // in which addresses are being counted
	uniqueSince  int64  // since when, ms of the limiter
	stopped      atomic.Bool
	stop         context.CancelFunc // ends reading
	reading      context.Context    //nolint:containedctx // of all syncs, ended by stop
	giveUp       context.CancelFunc // ends publishing
	publishing   context.Context    //nolint:containedctx // of all syncs, ended by giveUp
	done         chan struct{}      // closed when the loop has ended
}

// join makes a member, whose loop runs until leave.
func join(l *Limiter, now func() time.Time) *member {
	if now == nil {
		now = time.Now
	}
	m := &member{
		clusterSettings: l.settings.cluster,
		limiter:         l,
		now:             now,
		node:            rand.Text(),
		done:            make(chan struct{}),
	}
	most, addresses := m.limits.MaxTrackedActors, 0
	if m.limits.MaxSubnetRate > 0 && m.limits.RequiredIPs > 1 {
		addresses = l.subnets.addresses
		l.subnets.sighted = true
	}
	l.hosts.tally, l.ips.tally, l.subnets.tally = newTally(most, 0), newTally(most, 0), newTally(most, addresses)
	m.blocked.Store(noLists)
	m.uniqueWindow, _ = m.limits.WindowAt(now())
	m.reading, m.stop = context.WithCancel(context.Background())
	m.publishing, m.giveUp = context.WithCancel(context.Background())
	go m.run()
	return m
}

func (m *member) run() {
	defer close(m.done)
	ticker := time.NewTicker(m.interval)
	defer ticker.Stop()
	for m.reading.Err() == nil {
		select {
		case <-m.reading.Done():
		case <-ticker.C:
			if m.reading.Err() == nil { // both may be ready
				m.sync(context.Background())
			}
		}
	}
}

// leave stops the loop. A publication under way is finished, unless ctx ends before;
// what has failed is given up.
func (m *member) leave(ctx context.Context) error {
	m.stopped.Store(true)
	m.stop()
	left := make(chan struct{})
	go func() {
		defer close(left)
		<-m.done
		m.mu.Lock() // wait for a call of Sync
		m.pending = nil
		m.mu.Unlock()
	}()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		m.giveUp()
		return ctx.Err()
	}
}

// noLists are the lists without a cluster.
var noLists = newBlocked(&Blocklists{}, false)

// lists are the blocklists in force. m may be nil.
func (m *member) lists() *blocked {
	if m == nil {
		return noLists
	}
	return m.blocked.Load()
}

// sync publishes and reads, unless another sync is at work.
func (m *member) sync(ctx context.Context) {
	if !m.mu.TryLock() {
		return
	}
	defer m.mu.Unlock()
	begin := time.Now()
	var stats SyncStats
	if !m.publishAll(ctx, &stats) || m.stopped.Load() || !m.read(ctx) {
		return
	}
	if m.onSync != nil {
		lists := m.blocked.Load().lists
		stats.BlockedIPs, stats.BlockedSubnets, stats.HostViolations = len(lists.IPs), len(lists.Subnets), len(lists.Hosts)
		stats.Took = time.Since(begin)
		m.onSync(stats)
	}
}

// publishAll publishes what is left of the last time, and what was tracked since. It
// reports whether nothing is left.
func (m *member) publishAll(ctx context.Context, stats *SyncStats) bool {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	defer context.AfterFunc(m.publishing, cancel)()
	if m.pending != nil && !m.publish(ctx, m.pending, stats) {
		return false
	}
	m.pending = nil
	batch := m.take()
	if batch.Empty() || m.publish(ctx, batch, stats) {
		return true
	}
	if m.limits.Compat {
		m.putBack(batch)
	} else {
		m.pending = batch
	}
	return false
}

func (m *member) publish(ctx context.Context, b *Batch, stats *SyncStats) bool {
	if err := m.store.Publish(ctx, &m.limits, b); err != nil {
		m.failed("publish", err)
		return false
	}
	stats.PublishedIPs += len(b.IPs)
	stats.PublishedSubnets += len(b.Subnets)
	stats.PublishedHosts += len(b.Hosts)
	return true
}

// read takes over new lists. It reports whether there was an answer.
func (m *member) read(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	defer context.AfterFunc(m.reading, cancel)()
	lists, err := m.store.Blocklists(ctx, &m.limits, m.now())
	if lists != nil {
		m.set(lists)
	}
	if err != nil {
		m.failed("read", err)
	}
	return lists != nil || err == nil
}

func (m *member) set(lists *Blocklists) { m.blocked.Store(newBlocked(lists, m.limits.Compat)) }

func (m *member) failed(what string, err error) {
	if m.onError != nil {
		m.onError(fmt.Errorf("qos: %s cluster counts: %w", what, err))
	}
}

// take makes a batch of what was tracked since the last one.
func (m *member) take() *Batch {
	window, _ := m.limits.WindowAt(m.now())
	m.batches++
	b := &Batch{ID: fmt.Sprintf("%s-%d", m.node, m.batches), Window: window, UniqueWindow: m.uniqueWindow}
	roll, since := window != m.uniqueWindow, m.uniqueSince
	if roll {
		m.uniqueWindow, m.uniqueSince = window, m.limiter.moment().now+1
	}
	hosts, ips := m.limiter.hosts.takeHits(since, false), m.limiter.ips.takeHits(since, false)
	subnets := m.limiter.subnets.takeHits(since, roll)
	b.Total, b.Hosts = hosts.total, texts(hosts.hits, true)
	b.IPs, b.Subnets = texts(ips.hits, m.limits.Compat), texts(subnets.hits, m.limits.Compat)
	if m.limits.MaxSubnetRate > 0 && m.limits.RequiredIPs > 1 {
		b.UniqueIPs = texts(subnets.unique, m.limits.Compat)
	}
	return b
}

// texts writes keys as texts. Unless all are wanted, those that are no address are left
// out: what is unknown is not the same client on every node.
func texts(taken []keyHits, all bool) []Hits {
	hits := make([]Hits, 0, len(taken))
	for _, h := range taken {
		if all || h.key.text == addrText {
			hits = append(hits, Hits{h.key.String(), h.n})
		}
	}
	return hits
}

// putBack counts the hits of a batch again, as connect-qos does.
func (m *member) putBack(b *Batch) {
	for kind, hits := range [][]Hits{Host: b.Hosts, IP: b.IPs, Subnet: b.Subnets} {
		for _, h := range hits {
			k := textKey(h.Key)
			m.limiter.table(Kind(kind)).addHits(&k, h.N, true)
		}
	}
	// What came of keys beyond the limit has only its sum.
	for _, h := range b.Hosts {
		b.Total -= h.N
	}
	m.limiter.hosts.addTotal(b.Total)
}

// Sync syncs with the cluster now, besides the regular times. It does nothing while
// another sync is at work, or without Options.Cluster. OnSync and OnError are told
// how it went.
func (l *Limiter) Sync(ctx context.Context) {
	if l.cluster != nil {
		l.cluster.sync(ctx)
	}
}

// AddHits counts hits for the cluster alone, such as those of requests that something
// in front of this limiter has answered. A key is an address, any address of a subnet,
// or a host. Whitelisted keys do not count, as with requests.
//
// With Compat the text is taken as it is, and whitelisted keys count: connect-qos
// normalises hosts and looks at its whitelists before it gets as far as this. It does
// nothing without Options.Cluster, or if n is not positive.
func (l *Limiter) AddHits(kind Kind, text string, n int64) {
	if n > 0 && kind >= Host && kind <= Subnet {
		k := textKey(text)
		if !l.settings.compat {
			k = l.keyOf(kind, text)
		}
		l.table(kind).addHits(&k, n, l.settings.compat)
	}
}

// SetBlocklists replaces the blocklists of the cluster. It is for a store that is
// told of new lists. It does nothing without Options.Cluster, or if lists is nil.
func (l *Limiter) SetBlocklists(lists *Blocklists) {
	if l.cluster != nil && lists != nil {
		l.cluster.set(lists)
	}
}

// Blocklists returns the blocklists of the cluster that are in force; empty ones
// without Options.Cluster.
func (l *Limiter) Blocklists() *Blocklists {
	return l.cluster.lists().lists
}
