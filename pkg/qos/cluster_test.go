package qos

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// board is a store in memory. What has come under an ID counts once.
type board struct {
	publishFails, readFails atomic.Pointer[error] // with what it answers
	lists                   atomic.Pointer[Blocklists]
	limits                  ClusterLimits // of the last reader
	drops                   bool          // what fails has not arrived

	mu      sync.Mutex
	batches []*Batch // each call
}

func (s *board) Publish(_ context.Context, _ *ClusterLimits, b *Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.publishFails.Load()
	if err == nil || !s.drops {
		s.batches = append(s.batches, b)
	}
	if err != nil {
		return *err
	}
	return nil
}

func (s *board) Blocklists(_ context.Context, limits *ClusterLimits, _ time.Time) (*Blocklists, error) {
	s.limits = *limits
	if err := s.readFails.Load(); err != nil {
		return s.lists.Load(), *err
	}
	return s.lists.Load(), nil
}

// taken is the batches since the last time.
func (s *board) taken() []*Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	batches := s.batches
	s.batches = nil
	for _, b := range batches {
		for _, hits := range [][]Hits{b.IPs, b.Subnets, b.Hosts, b.UniqueIPs} {
			slices.SortFunc(hits, func(a, b Hits) int { return strings.Compare(a.Key, b.Key) })
		}
	}
	return batches
}

// newMember makes a limiter that syncs when it is told to.
func newMember(t testing.TB, o Options, c ClusterOptions) (*Limiter, *world, *board) {
	t.Helper()
	store := &board{}
	c.Store = store
	c.SyncInterval = time.Hour
	o.Cluster = &c
	l, w := newLimiter(t, o)
	return l, w, store
}

func actor(l *Limiter, host, address string) Actor {
	return l.NewActor(host, netip.MustParseAddr(address))
}

func TestClusterCountsWhatIsTracked(t *testing.T) {
	t.Parallel()
	l, _, store := newMember(t, Options{
		MinHostRate: new(0.2), MaxHostRate: new(0.2), // two requests; the others are off
		HostWhitelist: []string{"ok.example"}, IPWhitelist: []string{"192.0.2.9"}, SubnetWhitelist: []string{"198.51.100.0/24"},
	}, ClusterOptions{MaxIPRate: 1})
	require.Equal(t, Pass, l.Decide(actor(l, "ok.example", "192.0.2.1")))
	require.Equal(t, Pass, l.Decide(actor(l, "a.example", "192.0.2.9")))
	require.Equal(t, Pass, l.Decide(actor(l, "www.a.example:80", "::ffff:192.0.2.1")))
	require.Equal(t, Pass, l.Decide(actor(l, "a.example", "198.51.100.1")))
	require.Equal(t, BadHost, l.Decide(actor(l, "a.example", "203.0.113.1")))
	require.False(t, l.IsBadIP("2001:db8::1", true))
	require.False(t, l.IsBadIP("2001:db8::2", false))
	require.False(t, l.IsBadSubnet("2001:db8::1", true))
	require.False(t, l.IsBadHost("b.example", true))
	require.False(t, l.IsBadIP("no address", true))
	require.False(t, l.IsBadSubnet("no address", true))
	l.Sync(t.Context())
	batches := store.taken()
	require.Len(t, batches, 1)
	b := batches[0]
	require.Equal(t, []Hits{{"192.0.2.1", 1}, {"198.51.100.1", 1}, {"2001:db8::1", 1}}, b.IPs)
	require.Equal(t, []Hits{{"192.0.2.0", 1}, {"2001:db8::", 1}}, b.Subnets)
	require.Equal(t, []Hits{{"a.example", 2}, {"b.example", 1}}, b.Hosts)
	require.EqualValues(t, 3, b.Total)
	require.Empty(t, b.UniqueIPs)

	l.Sync(t.Context())
	require.Empty(t, store.taken(), "nothing is left to publish")

	l.AddHits(Host, "www.a.example:80", 5)
	l.AddHits(IP, "::ffff:192.0.2.1", 6)
	l.AddHits(Subnet, "192.0.2.1", 7)
	l.AddHits(Kind(7), "192.0.2.1", 8)
	l.AddHits(IP, "192.0.2.1", -8)
	l.Sync(t.Context())
	b = store.taken()[0]
	require.Equal(t, []Hits{{"192.0.2.1", 6}}, b.IPs)
	require.Equal(t, []Hits{{"192.0.2.0", 7}}, b.Subnets)
	require.Equal(t, []Hits{{"a.example", 5}}, b.Hosts)
	require.EqualValues(t, 5, b.Total)
}

// TestClusterHitsOfListedKeys: what is whitelisted does not count, whoever has seen it.
// With Compat the hits go where connect-qos puts them after it has looked at its lists.
func TestClusterHitsOfListedKeys(t *testing.T) {
	t.Parallel()
	for _, compat := range []bool{false, true} {
		l, _, store := newMember(t, Options{
			HostWhitelist: []string{"ok.example"}, IPWhitelist: []string{"192.0.2.9"}, SubnetWhitelist: []string{"198.51.100.0"},
			Compat: compat,
		}, ClusterOptions{})
		l.AddHits(Host, "ok.example", 2)
		l.AddHits(IP, "192.0.2.9", 3)
		l.AddHits(Subnet, "198.51.100.0", 4)
		l.Sync(t.Context())
		batches := store.taken()
		if !compat {
			require.Empty(t, batches)
			continue
		}
		require.Len(t, batches, 1)
		require.Equal(t, []Hits{{"ok.example", 2}}, batches[0].Hosts)
		require.Equal(t, []Hits{{"192.0.2.9", 3}}, batches[0].IPs)
		require.Equal(t, []Hits{{"198.51.100.0", 4}}, batches[0].Subnets)
		require.EqualValues(t, 2, batches[0].Total)
	}
}

func TestClusterCap(t *testing.T) {
	t.Parallel()
	l, _, store := newMember(t, unlimitedHosts(Options{}), ClusterOptions{MaxTrackedActors: 2})
	for range 2 {
		for _, n := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"} {
			require.Equal(t, Pass, l.Decide(actor(l, "host-"+n, n)))
		}
		l.Sync(t.Context())
		b := store.taken()[0]
		require.Equal(t, []Hits{{"192.0.2.1", 2}, {"192.0.2.2", 1}}, b.IPs)
		require.Equal(t, []Hits{{"192.0.2.0", 4}}, b.Subnets)
		require.Equal(t, []Hits{{"host-192.0.2.1", 2}, {"host-192.0.2.2", 1}}, b.Hosts)
		require.EqualValues(t, 4, b.Total, "the total has those beyond the cap")
	}
}

// TestClusterCountsEvictedKeys: hits outlive the history of their key, and go on when it
// begins anew.
func TestClusterCountsEvictedKeys(t *testing.T) {
	t.Parallel()
	l, _, store := newMember(t, Options{
		MinHostRate: new(1000.0), MaxHostRate: new(1000.0), MinIPRate: 1000, MaxIPRate: 1000, HistorySize: new(2),
	}, ClusterOptions{MaxTrackedActors: 4})
	for round := range 2 {
		for _, n := range []string{"1", "2", "3", "1", "4", "3", "5", "1"} { // 5 is beyond the cap
			require.Equal(t, Pass, l.Decide(actor(l, "host"+n, "192.0.2."+n)))
		}
		l.AddHits(IP, "192.0.2.1", 10) // has a history
		l.AddHits(IP, "192.0.2.2", 10) // has none
		l.Sync(t.Context())
		b := store.taken()[0]
		require.Equal(t, []Hits{{"192.0.2.1", 13}, {"192.0.2.2", 11}, {"192.0.2.3", 2}, {"192.0.2.4", 1}}, b.IPs, "round %d", round)
		require.Equal(t, []Hits{{"host1", 3}, {"host2", 1}, {"host3", 2}, {"host4", 1}}, b.Hosts)
		require.Equal(t, []Hits{{"192.0.2.0", 8}}, b.Subnets)
		require.EqualValues(t, 8, b.Total)
	}
}

// TestClusterBatchComesAgainUnchanged: a store that remembers IDs can count it once.
func TestClusterBatchComesAgainUnchanged(t *testing.T) {
	t.Parallel()
	var failures []string
	var syncs []SyncStats
	l, w, store := newMember(t, unlimitedHosts(Options{}), ClusterOptions{
		OnError: func(err error) { failures = append(failures, err.Error()) },
		OnSync:  func(s SyncStats) { syncs = append(syncs, s) },
	})
	store.publishFails.Store(new(errors.New("no route")))
	l.Decide(actor(l, "a.example", "192.0.2.1"))
	l.Sync(t.Context())
	first := store.taken()
	require.Len(t, first, 1)
	saved := *first[0]

	l.Decide(actor(l, "a.example", "192.0.2.1"))
	w.ms.Add(30_000)
	l.Sync(t.Context())
	require.Equal(t, []*Batch{&saved}, store.taken())
	require.Empty(t, syncs)
	require.Equal(t, []string{"qos: publish cluster counts: no route", "qos: publish cluster counts: no route"}, failures)

	store.publishFails.Store(nil)
	l.Sync(t.Context())
	batches := store.taken()
	require.Len(t, batches, 2)
	require.Equal(t, &saved, batches[0])
	require.NotEqual(t, saved.ID, batches[1].ID)
	require.Equal(t, saved.Window+3, batches[1].Window)
	require.Equal(t, []Hits{{"192.0.2.1", 1}}, batches[1].IPs)
	require.Len(t, syncs, 1)
	require.Equal(t, 2, syncs[0].PublishedIPs)
}

// TestClusterBatchIsPutBackWithCompat: in connect-qos hits come again with others.
func TestClusterBatchIsPutBackWithCompat(t *testing.T) {
	t.Parallel()
	l, _, store := newMember(t, unlimitedHosts(Options{Compat: true}), ClusterOptions{MaxTrackedActors: 1})
	store.publishFails.Store(new(errors.New("no route")))
	l.Decide(actor(l, "a.example", "192.0.2.1"))
	l.Decide(actor(l, "b.example", "192.0.2.1"))
	l.Sync(t.Context())
	host := store.taken()[0].Hosts
	l.Decide(actor(l, "c.example", "192.0.2.1"))
	store.publishFails.Store(nil)
	l.Sync(t.Context())
	b := store.taken()[0]
	require.Equal(t, []Hits{{"192.0.2.1", 3}}, b.IPs)
	require.Equal(t, []Hits{{"192.0.2.0", 3}}, b.Subnets)
	require.Equal(t, host, b.Hosts, "c.example is beyond the cap")
	require.EqualValues(t, 3, b.Total)
}

func TestClusterBlocklistsDecide(t *testing.T) {
	t.Parallel()
	lists := &Blocklists{
		IPs: []string{"::ffff:192.0.2.1", "192.0.2.9"}, Subnets: []string{"198.51.100.0", "203.0.113.0"}, Hosts: []string{"hot.example", "ok.example"},
	}
	l, _, store := newMember(t, unlimitedHosts(Options{
		HostWhitelist: []string{"ok.example"}, IPWhitelist: []string{"192.0.2.9"}, SubnetWhitelist: []string{"203.0.113.0/24"},
	}), ClusterOptions{})
	require.Equal(t, Pass, l.Decide(actor(l, "hot.example", "192.0.2.1")))
	require.Equal(t, &Blocklists{}, l.Blocklists())
	store.lists.Store(lists)
	l.Sync(t.Context())
	require.Equal(t, lists, l.Blocklists())
	for _, test := range []struct {
		host, address string
		want          Reason
	}{
		{"hot.example", "192.0.2.1", HostViolation},
		{"hot.example", "192.0.2.9", Pass},
		{"ok.example", "192.0.2.1", Pass},
		{"a.example", "192.0.2.1", BadIP},
		{"a.example", "192.0.2.9", Pass},
		{"a.example", "198.51.100.7", BadSubnet},
		{"a.example", "203.0.113.7", Pass},
		{"a.example", "192.0.2.2", Pass},
	} {
		require.Equal(t, test.want, l.Decide(actor(l, test.host, test.address)), "%+v", test)
	}
	require.False(t, l.IsBadIP("192.0.2.1", false), "queries are about this node")

	store.lists.Store(nil)
	l.Sync(t.Context())
	require.Equal(t, lists, l.Blocklists(), "nothing new")
	store.readFails.Store(new(errors.New("no route")))
	l.Sync(t.Context())
	require.Equal(t, lists, l.Blocklists(), "they stay while the store fails")
	l.SetBlocklists(&Blocklists{})
	require.Equal(t, Pass, l.Decide(actor(l, "hot.example", "192.0.2.1")))
}

// TestClusterOrder: what this node finds of addresses and subnets comes before what
// the cluster finds of them, and after its violations.
func TestClusterOrder(t *testing.T) {
	t.Parallel()
	l, _, _ := newMember(t, Options{
		MinHostRate: new(0.4), MaxHostRate: new(0.4), MinIPRate: 0.2, MaxIPRate: 0.2, MinSubnetRate: 0.3, MaxSubnetRate: 0.3,
		MinSubnetUniqueIPs: new(1.0),
	}, ClusterOptions{})
	for _, address := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.3.1"} {
		require.Equal(t, Pass, l.Decide(actor(l, "full.example", address)))
	}
	l.SetBlocklists(&Blocklists{
		IPs: []string{"192.0.2.1", "192.0.2.3", "192.0.3.2"}, Subnets: []string{"192.0.2.0", "192.0.3.0"}, Hosts: []string{"full.example", "hot.example"},
	})
	require.Equal(t, BadHost, l.Decide(actor(l, "full.example", "192.0.2.1")))
	require.Equal(t, HostViolation, l.Decide(actor(l, "hot.example", "192.0.2.1")))
	require.Equal(t, BadIP, l.Decide(actor(l, "a.example", "192.0.2.1")))
	require.Equal(t, BadSubnet, l.Decide(actor(l, "a.example", "192.0.2.3")), "the subnet is bad here, the address in the cluster")
	require.Equal(t, BadIP, l.Decide(actor(l, "a.example", "192.0.3.2")))
	require.Equal(t, BadSubnet, l.Decide(actor(l, "a.example", "192.0.3.3")))
}

func TestClusterViolationOverride(t *testing.T) {
	t.Parallel()
	for _, tracked := range []bool{true, false} {
		o := unlimitedHosts(Options{})
		if tracked {
			o.MinIPRate, o.MaxIPRate = 0.2, 100
		}
		l, _, _ := newMember(t, o, ClusterOptions{MaxIPRateHostViolation: 500})
		l.SetBlocklists(&Blocklists{Hosts: []string{"hot.example"}})
		// Within one millisecond n requests are a rate of n * 1000.
		require.Equal(t, Pass, l.Decide(actor(l, "hot.example", "192.0.2.1")))
		require.Equal(t, Pass, l.Decide(actor(l, "hot.example", "192.0.2.1")))
		want := HostViolation
		if !tracked {
			want = Pass
		}
		require.Equal(t, want, l.Decide(actor(l, "hot.example", "192.0.2.1")), "tracked %v", tracked)
		require.Equal(t, Pass, l.Decide(actor(l, "hot.example", "192.0.2.2")))
	}
}

// TestClusterUniqueIPs: addresses add up within a window, and are told for the window
// in which they were seen.
func TestClusterUniqueIPs(t *testing.T) {
	t.Parallel()
	t.Run("with histories", func(t *testing.T) {
		t.Parallel()
		testClusterUniqueIPs(t, Options{MinSubnetRate: 1000, MaxSubnetRate: 1000, MinSubnetUniqueIPs: new(1.0)})
	})
	t.Run("without", func(t *testing.T) {
		t.Parallel()
		testClusterUniqueIPs(t, Options{})
	})
}

func testClusterUniqueIPs(t *testing.T, o Options) {
	t.Helper()
	l, w, store := newMember(t, unlimitedHosts(o), ClusterOptions{MaxSubnetRate: 1})
	sync := func() *Batch {
		l.Sync(t.Context())
		batches := store.taken()
		require.Len(t, batches, 1)
		return batches[0]
	}
	decide := func(addresses ...string) {
		for _, address := range addresses {
			require.Equal(t, Pass, l.Decide(actor(l, "a.example", address)))
		}
	}
	decide("192.0.2.1", "192.0.2.255", "192.0.2.1", "192.0.3.1", "2001:db8::1")
	b := sync()
	first := b.Window
	require.Equal(t, []Hits{{"192.0.2.0", 2}, {"192.0.3.0", 1}}, b.UniqueIPs)
	require.Equal(t, first, b.UniqueWindow)

	w.ms.Add(2000)
	decide("192.0.2.2", "192.0.2.1")
	b = sync()
	require.Equal(t, []Hits{{"192.0.2.0", 2}}, b.Subnets)
	require.Equal(t, []Hits{{"192.0.2.0", 3}}, b.UniqueIPs, "those of the last batch are not forgotten")

	w.ms.Add(8000)
	decide("192.0.2.3", "192.0.3.1")
	b = sync()
	require.Equal(t, first+1, b.Window)
	require.Equal(t, first, b.UniqueWindow, "seen before this node knew of the new window")
	require.Equal(t, []Hits{{"192.0.2.0", 4}, {"192.0.3.0", 1}}, b.UniqueIPs)

	w.ms.Add(1)
	decide("192.0.2.1")
	b = sync()
	require.Equal(t, first+1, b.UniqueWindow)
	require.Equal(t, []Hits{{"192.0.2.0", 1}}, b.UniqueIPs)

	l.AddHits(Subnet, "192.0.3.0", 1)
	b = sync()
	require.Equal(t, []Hits{{"192.0.3.0", 1}}, b.Subnets)
	require.Empty(t, b.UniqueIPs, "none of its addresses was seen in this window")
}

// TestClusterAddHitsAsTheyAreWithCompat: in connect-qos what is counted for the cluster
// has been normalised before.
func TestClusterAddHitsAsTheyAreWithCompat(t *testing.T) {
	t.Parallel()
	l, _, store := newMember(t, Options{Compat: true}, ClusterOptions{MaxIPRate: 1})
	l.AddHits(Host, "www.a.example:80", 1)
	l.AddHits(IP, "::FFFF:192.0.2.1", 2)
	l.AddHits(Subnet, "192.0.2.1", 3)
	l.Sync(t.Context())
	b := store.taken()[0]
	require.Equal(t, []Hits{{"www.a.example:80", 1}}, b.Hosts)
	require.Equal(t, []Hits{{"::FFFF:192.0.2.1", 2}}, b.IPs)
	require.Equal(t, []Hits{{"192.0.2.1", 3}}, b.Subnets)
}

// TestClusterLosesNothing: hits of many goroutines, while batches are taken, some of
// which come twice.
func TestClusterLosesNothing(t *testing.T) {
	t.Parallel()
	const goroutines, each = 64, 300
	for _, compat := range []bool{false, true} {
		// Few histories: keys come and go.
		l, _, store := newMember(t, unlimitedHosts(Options{
			Compat: compat, MinIPRate: 1e6, MaxIPRate: 1e6, HistorySize: new(5),
		}), ClusterOptions{MaxSubnetRate: 1, MinSubnetUniqueIPs: new(2.0)})
		store.drops = compat // else each comes twice
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range each {
					a := l.NewActor("a.example", netip.AddrFrom4([4]byte{192, 0, byte(i % 5), byte(g)}))
					l.Decide(a)
					if g == 0 && i%10 == 0 {
						if i%20 == 0 {
							store.publishFails.Store(new(errors.New("no route")))
						} else {
							store.publishFails.Store(nil)
						}
						l.Sync(t.Context())
					}
				}
			})
		}
		wg.Wait()
		store.publishFails.Store(nil)
		l.Sync(t.Context())
		seen := make(map[string]bool)
		var total, ips, subnets, hosts int64
		sum := func(hits []Hits) (n int64) {
			for _, h := range hits {
				n += h.N
			}
			return n
		}
		for _, b := range store.taken() {
			if seen[b.ID] {
				continue
			}
			seen[b.ID] = true
			total += b.Total
			ips, subnets, hosts = ips+sum(b.IPs), subnets+sum(b.Subnets), hosts+sum(b.Hosts)
		}
		for _, n := range []int64{total, ips, subnets, hosts} {
			require.EqualValues(t, goroutines*each, n)
		}
	}
}
