package qos

import (
	"math"
	"slices"
)

// model decides as a limiter does, from every request there ever was: no bounded
// history, no shards, no bitsets. It is written from the rules, with plain text
// keys that the test gives it.
type model struct {
	minLag, maxLag           float64
	host, ip, subnet         modelList
	share                    float64
	ipOverride, netOverride  float64
	compat                   bool
	ratioHits                []modelHit
	ratioCounts              map[string]int
	inViolation              []string
	violationsSince          int64
	hostWhitelist, whiteIPs  []string
	now                      int64
	lag                      float64
	uniqueIPs, maxAge, nSize int

	// Of the cluster.
	lists                      Blocklists
	clusterIPOver, clusterOver float64
	most                       int // keys
	told                       modelBatch
}

// modelBatch is what the cluster is told: by kind and key.
type modelBatch struct {
	hits  [3]map[string]int64
	total int64
}

func newModelBatch() modelBatch {
	return modelBatch{hits: [3]map[string]int64{{}, {}, {}}}
}

// tell counts hits for the cluster.
func (d *model) tell(kind Kind, k string, n int64) {
	if kind == Host {
		d.told.total += n
	}
	hits := d.told.hits[kind]
	if hits[k] > 0 || len(hits) < d.most {
		hits[k] += n
	}
}

// modelList is the histories of one kind, most recently used first.
type modelList struct {
	min, max  float64
	whitelist []string
	order     []string
	hits      map[string][]modelHit
}

// modelHit is a request; who is its host for the ratio, its address for a subnet.
type modelHit struct {
	at  int64
	who string
}

// modelActor is an actor as plain text. judged differs from host with Compat;
// who tells the IPv4 addresses of a subnet apart.
type modelActor struct {
	host, judged, ip, subnet, who string
}

func (d *model) required(l *modelList) float64 { return math.Ceil(l.min * (float64(d.maxAge) / 1000)) }

func (l *modelList) use(k string) {
	l.order = slices.DeleteFunc(l.order, func(other string) bool { return other == k })
	l.order = slices.Insert(l.order, 0, k)
}

// bad is the status of a key under limits that may be overridden.
func (d *model) bad(l *modelList, k string, low, high float64, gated bool) bool {
	if d.required(l) == 0 || slices.Contains(l.whitelist, k) || !slices.Contains(l.order, k) {
		return false
	}
	l.use(k)
	var recent []modelHit
	for _, hit := range l.hits[k] {
		if hit.at >= d.now-int64(d.maxAge) {
			recent = append(recent, hit)
		}
	}
	rate := 0.0
	if float64(len(recent)) >= d.required(l) {
		age := 1.0
		if len(recent) > 0 && recent[0].at != d.now {
			age = float64(d.now - recent[0].at)
		}
		rate = (float64(len(recent)) / age) * 1000
	}
	ratio := 0.0
	if d.lag > d.minLag {
		ratio = math.Min(1, (d.lag-d.minLag)/(d.maxLag-d.minLag))
	}
	product := (1 - ratio) * (high - low)
	if rate <= product+low {
		return false
	}
	if !gated || d.uniqueIPs <= 1 {
		return true
	}
	distinct := make(map[string]bool)
	for _, hit := range recent {
		if hit.who != "" {
			distinct[hit.who] = true
		}
	}
	return len(distinct) >= d.uniqueIPs
}

func (d *model) list(kind Kind) *modelList {
	return map[Kind]*modelList{Host: &d.host, IP: &d.ip, Subnet: &d.subnet}[kind]
}

func (d *model) track(kind Kind, k, who string) {
	l := d.list(kind)
	if slices.Contains(l.whitelist, k) {
		return
	}
	d.tell(kind, k, 1)
	if l.min == 0 {
		return
	}
	l.use(k)
	l.hits[k] = append(l.hits[k], modelHit{d.now, who})
	if len(l.order) > d.nSize {
		evicted := l.order[len(l.order)-1]
		l.order = l.order[:len(l.order)-1]
		delete(l.hits, evicted)
	}
}

// trackRatio counts a host for its share.
func (d *model) trackRatio(host string) {
	if d.share == 0 || slices.Contains(d.hostWhitelist, host) {
		return
	}
	d.ratioHits = append(d.ratioHits, modelHit{d.now, host})
	d.ratioCounts[host]++
	for d.ratioHits[0].at < d.now-60000 {
		if !d.compat {
			d.ratioCounts[d.ratioHits[0].who]--
		}
		d.ratioHits = d.ratioHits[1:]
	}
	if float64(len(d.ratioHits)) < math.Ceil(d.share*100*10) {
		return
	}
	limit := math.Floor(float64(len(d.ratioHits))*d.share + 0.5)
	d.inViolation, d.violationsSince = nil, d.now
	for host, count := range d.ratioCounts {
		if float64(count) > limit {
			d.inViolation = append(d.inViolation, host)
		}
	}
	d.ratioHits, d.ratioCounts = nil, make(map[string]int)
}

func (d *model) violations() []string {
	if !d.compat && d.now-d.violationsSince > 60000 {
		return []string{}
	}
	hosts := append([]string{}, d.inViolation...)
	slices.Sort(hosts)
	return hosts
}

func (d *model) decide(a modelActor) Reason {
	badHost := d.bad(&d.host, a.judged, d.host.min, d.host.max, false)
	badIP := d.bad(&d.ip, a.ip, d.ip.min, d.ip.max, false)
	badSubnet := d.bad(&d.subnet, a.subnet, d.subnet.min, d.subnet.max, a.who != "")
	if slices.Contains(d.hostWhitelist, a.host) || slices.Contains(d.whiteIPs, a.ip) {
		return Pass
	}
	if badHost {
		return BadHost
	}
	if slices.Contains(d.lists.Hosts, a.host) && d.violationHolds(a, d.clusterIPOver, d.clusterOver) {
		return HostViolation
	}
	if badIP {
		return BadIP
	}
	if badSubnet {
		return BadSubnet
	}
	if slices.Contains(d.lists.IPs, a.ip) {
		return BadIP
	}
	if slices.Contains(d.lists.Subnets, a.subnet) && !slices.Contains(d.subnet.whitelist, a.subnet) {
		return BadSubnet
	}
	if slices.Contains(d.violations(), a.host) && d.violationHolds(a, d.ipOverride, d.netOverride) {
		return HostViolation
	}
	d.trackRatio(a.host)
	d.track(Host, a.host, "")
	d.track(IP, a.ip, "")
	d.track(Subnet, a.subnet, a.who)
	return Pass
}

// violationHolds is what overrides leave of a violation.
func (d *model) violationHolds(a modelActor, ipOverride, netOverride float64) bool {
	if ipOverride == 0 && netOverride == 0 {
		return true
	}
	if v := ipOverride; v != 0 {
		low := math.Min(v, d.ip.min)
		if d.bad(&d.ip, a.ip, low, math.Max(v, low), false) {
			return true
		}
	}
	if v := netOverride; v != 0 {
		low := math.Min(v, d.subnet.min)
		return d.bad(&d.subnet, a.subnet, low, math.Max(v, low), a.who != "")
	}
	return false
}

// query is one of the isBad queries; who is the asking address, if it is known.
func (d *model) query(kind Kind, k, who string, track bool) bool {
	l := d.list(kind)
	if d.bad(l, k, l.min, l.max, who != "") {
		return true
	}
	if track {
		if kind == Host {
			d.trackRatio(k)
		}
		d.track(kind, k, who)
	}
	return false
}
