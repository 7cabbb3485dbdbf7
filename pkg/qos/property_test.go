package qos

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// namedHost is a Host header with its key, and with Compat the key it is judged by.
type namedHost struct{ header, host, judged string }

// namedIP is an address with its keys. who tells IPv4 addresses apart, and is empty
// for others.
type namedIP struct{ address, ip, subnet, who string }

// keyed are headers and addresses of one mode.
type keyed struct {
	hosts []namedHost
	ips   []namedIP
}

var (
	// defaultKeys are for a /30.
	defaultKeys = keyed{
		hosts: []namedHost{
			{"a.example", "a.example", ""}, {"www.A.example:80", "a.example", ""},
			{"b.example:", "b.example", ""}, {"www.www.b.example", "www.b.example", ""},
			{"[2001:DB8::1]:443", "[2001:db8::1]", ""}, {"[2001:db8::2]", "[2001:db8::2]", ""},
			{"", "unknown", ""}, {"ok.example", "ok.example", ""},
		},
		ips: []namedIP{
			{"192.0.2.0", "192.0.2.0", "192.0.2.0", "0"}, {"192.0.2.1", "192.0.2.1", "192.0.2.0", "1"},
			{"::ffff:192.0.2.1", "192.0.2.1", "192.0.2.0", "1"}, {"192.0.2.2", "192.0.2.2", "192.0.2.0", "2"},
			{"192.0.2.3", "192.0.2.3", "192.0.2.0", "3"}, {"192.0.2.4", "192.0.2.4", "192.0.2.4", "4"},
			{"192.0.2.9", "192.0.2.9", "192.0.2.8", "9"},
			{"2001:db8::1", "2001:db8::1", "2001:db8::", ""}, {"2001:db8::9:1", "2001:db8::9:1", "2001:db8::", ""},
			{"2001:db8:0:1::1", "2001:db8:0:1::1", "2001:db8:0:1::", ""},
			{"fe80::1%eth0", "fe80::1", "fe80::", ""},
		},
	}
	// compatKeys are the same as connect-qos sees them.
	compatKeys = keyed{
		hosts: []namedHost{
			{"a.example", "a.example", "a.example"}, {"www.A.example:80", "a.example", "a.example"},
			{"B.example:", "B.example:", "B.example:"}, {"www.www.b.example", "www.b.example", "b.example"},
			{"b.example", "b.example", "b.example"}, {"[2001:DB8::1]:443", "1]", "1]"},
			{"", "unknown", "unknown"}, {"ok.example", "ok.example", "ok.example"},
			{"www.www.ok.example", "www.ok.example", "ok.example"},
		},
		ips: []namedIP{
			{"192.0.2.0", "192.0.2.0", "192.0.2.0", "0"}, {"192.0.2.1", "192.0.2.1", "192.0.2.0", "1"},
			{"192.0.2.2", "192.0.2.2", "192.0.2.0", "2"}, {"192.0.2.3", "192.0.2.3", "192.0.2.0", "3"},
			{"192.0.2.4", "192.0.2.4", "192.0.2.4", "4"},
			{"::ffff:192.0.2.9", "::ffff:192.0.2.9", "192.0.2.8", "9"}, {"192.0.2.9", "192.0.2.9", "192.0.2.8", "9"},
			{"2001:db8::1", "2001:db8::1", "2001:db8::1", ""}, {"2001:db8::2", "2001:db8::2", "2001:db8::2", ""},
			{"fe80::1%eth0", "fe80::1%eth0", "fe80::1%eth0", ""},
		},
	}
)

func TestDecisionsEqualModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { compareWithModel(t, defaultKeys, false) })
}

func TestDecisionsEqualModelCompat(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { compareWithModel(t, compatKeys, true) })
}

// drawRates draws a pair of limits, off in one of four cases.
func drawRates(t *rapid.T) (low, high float64) {
	if rapid.IntRange(0, 3).Draw(t, "on") == 0 {
		return 0, rapid.Float64Range(0, 5).Draw(t, "max of a limit that is off")
	}
	low = rapid.Float64Range(0.1, 20).Draw(t, "min")
	return low, low * rapid.Float64Range(1, 4).Draw(t, "max/min")
}

func drawOverride(t *rapid.T, name string) float64 {
	return rapid.SampledFrom([]float64{0, 0, 0.5, 3, 40}).Draw(t, name)
}

func compareWithModel(t *rapid.T, keys keyed, compat bool) {
	d := &model{
		minLag: 70, maxLag: 300, compat: compat, ratioCounts: make(map[string]int),
		maxAge:     rapid.SampledFrom([]int{1, 50, 333, 1000, 4000}).Draw(t, "max age"),
		nSize:      rapid.IntRange(1, 6).Draw(t, "history size"),
		share:      rapid.SampledFrom([]float64{0, 0.003, 0.01, 0.02, 0.05}).Draw(t, "max host ratio"),
		uniqueIPs:  rapid.IntRange(1, 5).Draw(t, "unique addresses"),
		ipOverride: drawOverride(t, "ip override"), netOverride: drawOverride(t, "subnet override"),
		clusterIPOver: drawOverride(t, "cluster ip override"), clusterOver: drawOverride(t, "cluster subnet override"),
		most: rapid.IntRange(1, 8).Draw(t, "most tracked actors"), told: newModelBatch(),
	}
	store := &board{}
	for _, l := range []*modelList{&d.host, &d.ip, &d.subnet} {
		l.hits = make(map[string][]modelHit)
		l.min, l.max = drawRates(t)
	}
	if rapid.Bool().Draw(t, "whitelists") {
		d.host.whitelist, d.ip.whitelist, d.subnet.whitelist = []string{"ok.example"}, []string{"192.0.2.2"}, []string{"192.0.2.8"}
		d.hostWhitelist, d.whiteIPs = d.host.whitelist, d.ip.whitelist
	}
	w := &world{}
	l, err := New(Options{
		MinHostRate: &d.host.min, MaxHostRate: &d.host.max,
		MinIPRate: d.ip.min, MaxIPRate: d.ip.max, MinSubnetRate: d.subnet.min, MaxSubnetRate: d.subnet.max,
		SubnetMaskBits: new(30), MinSubnetUniqueIPs: new(float64(d.uniqueIPs)),
		MaxHostRatio: d.share, MaxIPRateHostViolation: d.ipOverride, MaxSubnetRateHostViolation: d.netOverride,
		HistorySize: &d.nSize, MaxAge: new(duration(float64(d.maxAge))),
		HostWhitelist: append([]string{}, d.host.whitelist...), IPWhitelist: d.ip.whitelist, SubnetWhitelist: d.subnet.whitelist,
		Cluster: &ClusterOptions{
			Store: store, SyncInterval: time.Hour, MaxTrackedActors: d.most,
			MaxIPRateHostViolation: d.clusterIPOver, MaxSubnetRateHostViolation: d.clusterOver,
		},
		Compat: compat, Lag: w, Now: w.Now,
	})
	require.NoError(t, err)
	defer l.Close()
	pauses := rapid.SampledFrom([]int64{0, 0, 1, 1, 5, 40, 127, 128, 129, 1001, 30_000, 60_000, 60_001})
	lags := rapid.SampledFrom([]float64{0, 0, 0, 70, 71, 150, 299, 300, 5000})
	for i := range rapid.IntRange(1, 400).Draw(t, "steps") {
		d.now += pauses.Draw(t, "pause")
		d.lag = lags.Draw(t, "lag")
		w.ms.Store(d.now)
		w.lag.Store(int64(d.lag) * int64(time.Millisecond))
		what, want, got := step(t, l, d, keys)
		require.Equal(t, want, got, "step %d at %d ms: %s", i, d.now, what)
		switch rapid.IntRange(0, 30).Draw(t, "cluster") {
		case 0:
			d.lists = drawLists(t, keys)
			l.SetBlocklists(&d.lists)
		case 1:
			l.Sync(t.Context())
			requireTold(t, d, store)
		}
	}
	l.Sync(t.Context())
	requireTold(t, d, store)
	require.Equal(t, append([]string{}, d.host.order...), l.hosts.keys(), "hosts")
	require.Equal(t, append([]string{}, d.ip.order...), l.ips.keys(), "addresses")
	require.Equal(t, append([]string{}, d.subnet.order...), l.subnets.keys(), "subnets")
	require.Equal(t, d.violations(), l.inViolation(), "violations")
	requireBounded(t, l)
}

func drawLists(t *rapid.T, keys keyed) Blocklists {
	var lists Blocklists
	for range rapid.IntRange(0, 3).Draw(t, "blocked") {
		ip := rapid.SampledFrom(keys.ips).Draw(t, "blocked address")
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			lists.IPs = append(lists.IPs, ip.ip)
		case 1:
			lists.Subnets = append(lists.Subnets, ip.subnet)
		case 2:
			lists.Hosts = append(lists.Hosts, rapid.SampledFrom(keys.hosts).Draw(t, "host in violation").host)
		}
	}
	return lists
}

// requireTold compares what the cluster was told.
func requireTold(t *rapid.T, d *model, store *board) {
	got := newModelBatch()
	for _, b := range store.taken() {
		for kind, hits := range [][]Hits{Host: b.Hosts, IP: b.IPs, Subnet: b.Subnets} {
			for _, h := range hits {
				got.hits[kind][h.Key] += h.N
			}
		}
		got.total += b.Total
	}
	require.Equal(t, d.told, got, "at %d ms", d.now)
	d.told = newModelBatch()
}

// step asks both the same.
func step(t *rapid.T, l *Limiter, d *model, keys keyed) (what string, want, got any) {
	host := rapid.SampledFrom(keys.hosts).Draw(t, "host")
	if host.judged == "" {
		host.judged = host.host
	}
	ip := rapid.SampledFrom(keys.ips).Draw(t, "ip")
	a := modelActor{host.host, host.judged, ip.ip, ip.subnet, ip.who}
	actual := l.Actor(request{Host: host.header, RemoteAddr: ip.address}.http())
	track := rapid.Bool().Draw(t, "track")
	switch op := rapid.IntRange(0, 12).Draw(t, "operation"); op {
	case 0:
		return "host query for " + host.header, d.query(Host, host.host, "", track), l.IsBad(Host, actual, track)
	case 1:
		return "address query for " + ip.address, d.query(IP, ip.ip, "", track), l.IsBadIP(ip.address, track)
	case 2:
		return "subnet query for " + ip.address, d.query(Subnet, ip.subnet, "", track), l.IsBadSubnet(ip.address, track)
	case 3:
		return "subnet query from " + ip.address, d.query(Subnet, ip.subnet, ip.who, track), l.IsBad(Subnet, actual, track)
	default:
		// One in three is a burst, so that limits are reached.
		n := 1
		if op > 8 {
			n = rapid.IntRange(2, 25).Draw(t, "burst")
		}
		var expected, outcomes []Reason
		for range n {
			expected = append(expected, d.decide(a))
			outcomes = append(outcomes, l.Decide(actual))
		}
		return fmt.Sprintf("%d requests for %+v", n, a), expected, outcomes
	}
}

// requireBounded checks that no history is longer than its bound.
func requireBounded(t require.TestingT, l *Limiter) {
	for _, table := range []*table{l.hosts, l.ips, l.subnets} {
		require.LessOrEqual(t, table.count.Load(), table.size)
		for i := range table.shards {
			require.Len(t, table.shards[i].queue, table.shards[i].index.used)
			for _, queued := range table.shards[i].queue {
				require.LessOrEqual(t, queued.entry.history.count, table.capacity)
			}
		}
	}
	if l.ratio != nil {
		require.LessOrEqual(t, len(l.ratio.names), 2*l.ratio.need)
	}
}

// TestHistoryEqualsList compares the packed times with a plain list.
func TestHistoryEqualsList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h history
		var list []int64
		now := rapid.Int64Range(0, 1<<40).Draw(t, "start")
		maxAge := rapid.Int64Range(0, 20_000).Draw(t, "max age")
		prune := func() {
			h.prune(now, maxAge)
			list = slices.DeleteFunc(list, func(at int64) bool { return at < now-maxAge })
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "operation") {
			case 0:
				prune()
			case 1:
				prune() // a push may have pruned already
				if len(list) > 0 {
					h.pop()
					list = list[1:]
				}
			default:
				now += rapid.SampledFrom([]int64{0, 1, 1, 1, 127, 128, 16383, 16384, 1 << 33}).Draw(t, "pause")
				h.push(now, maxAge)
				list = append(list, now)
			}
			require.LessOrEqual(t, int(h.count), len(list))
			pruned := h
			pruned.prune(now, maxAge)
			recent := slices.DeleteFunc(slices.Clone(list), func(at int64) bool { return at < now-maxAge })
			require.EqualValues(t, len(recent), pruned.count)
			if len(recent) > 0 {
				require.Equal(t, recent[0], pruned.oldest)
				require.Equal(t, recent[len(recent)-1], pruned.newest)
			}
		}
	})
}

// TestSightingsEqualList compares the table of addresses with a plain list.
func TestSightingsEqualList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		maxAge := rapid.Int64Range(1, 1000).Draw(t, "max age")
		now := rapid.Int64Range(0, 1<<40).Draw(t, "start")
		s := &sightings{base: now}
		n := rapid.IntRange(2, 12).Draw(t, "required")
		last := make(map[uint16]int64)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += rapid.Int64Range(0, 100).Draw(t, "pause")
			if rapid.IntRange(0, 3).Draw(t, "touch") > 0 {
				number := uint16(rapid.IntRange(0, 15).Draw(t, "number"))
				s.touch(number, 16, now, maxAge)
				last[number] = now
			}
			recent := 0
			for _, at := range last {
				if at >= now-maxAge {
					recent++
				}
			}
			require.Equal(t, recent >= n, s.enough(n, now, maxAge), "%d of %d at %d", recent, n, now)
		}
	})
}

// TestSightingsForgetOnceIn49Days: times do not wrap around.
func TestSightingsForgetOnceIn49Days(t *testing.T) {
	t.Parallel()
	const maxAge, wrap = 10_000, 1 << 32
	for _, others := range []uint16{1, 20} {
		s := &sightings{}
		for n := range others + 1 {
			s.touch(n, 256, 5, maxAge)
		}
		require.True(t, s.enough(2, 6, maxAge))
		s.touch(100, 256, wrap+5, maxAge)
		require.False(t, s.enough(2, wrap+6, maxAge), "the others were seen 49 days ago")
		s.touch(101, 256, wrap+7, maxAge)
		require.True(t, s.enough(2, wrap+8, maxAge))
	}
}

// TestSightingsStaySmall: a table of all addresses is only for subnets that show
// many at a time.
func TestSightingsStaySmall(t *testing.T) {
	t.Parallel()
	const maxAge = 100
	s := &sightings{}
	for n := range int64(1000) {
		s.touch(uint16(n%256), 256, n*20, maxAge) // six within 100 ms
	}
	require.Nil(t, s.all)
	for n := range uint16(fewAddresses + 1) {
		s.touch(n, 256, 20_000, maxAge)
	}
	require.NotNil(t, s.all)
}

func TestKeyStringIsAddress(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0.0.0.0", "192.0.2.1", "::", "::1", "2001:db8::1"} {
		require.Equal(t, text, addrKey(netip.MustParseAddr(text)).String())
	}
}
