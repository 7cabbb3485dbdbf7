package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of compose.test.yaml.
const maxServed, maxPending = 3, 2

// clients ask the front, each under an address of its own.
type clients struct {
	front, counts string // base URLs
	http          *http.Client
	networks      atomic.Int64 // handed out

	// denied counts the refusals of the queue that were answered, which are to be
	// found again in the database.
	denied atomic.Int64
	// lastFailure says why the last request that failed did, as a string.
	lastFailure atomic.Value
}

func newClients(front, counts string) *clients {
	return &clients{
		front: "http://" + front, counts: "http://" + counts,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: time.Minute},
	}
}

// answer is what became of one request.
type answer int

const (
	served answer = iota
	refused
	blocked
	failed
)

// ask makes one request of an address.
func (c *clients) ask(ctx context.Context, ip, group string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.front+"/page", nil)
	if err != nil {
		return failed
	}
	req.Header.Set("Test-Client", ip)
	req.Header.Set("Test-Group", group)
	resp, err := c.http.Do(req)
	if err != nil {
		c.lastFailure.Store(err.Error())
		return failed
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		c.lastFailure.Store(err.Error())
		return failed
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return served
	case http.StatusTooManyRequests:
		// A block lasts for days, the queue asks to come back in seconds.
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 3600 {
			return blocked
		}
		c.denied.Add(1)
		return refused
	}
	c.lastFailure.Store(resp.Status)
	return failed
}

// network returns the addresses of a network that nobody has used.
func (c *clients) network() (ip func(host int) string, group string) {
	n := c.networks.Add(1)
	prefix := fmt.Sprintf("100.%d.%d", 64+n/256, n%256)
	return func(host int) string { return fmt.Sprintf("%s.%d", prefix, host%254+1) }, prefix
}

// tally counts answers.
type tally [4]atomic.Int64

func (t *tally) of(a answer) int64 { return t[a].Load() }

// flood sends requests of many addresses, as fast as so many at once go. When ctx
// ends, no more are sent, and those under way are awaited.
func (c *clients) flood(ctx context.Context, networks, perNetwork, requests, atOnce int) *tally {
	type network struct {
		ip    func(int) string
		group string
	}
	all := make([]network, networks)
	for i := range all {
		all[i].ip, all[i].group = c.network()
	}
	var t tally
	var next atomic.Int64
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= requests || ctx.Err() != nil {
					return
				}
				from := all[n%networks]
				// Whoever hangs up does not know whether it was refused.
				t[c.ask(context.WithoutCancel(ctx), from.ip(n/networks%perNetwork), from.group)].Add(1)
			}
		})
	}
	workers.Wait()
	return &t
}

// steady is traffic that no limit concerns: whatever goes wrong with a request
// is the fault of what is being done to ccnq.
type steady struct {
	tally
	why   *atomic.Value // of the clients
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// steadyPace is 50 requests a second, over 200 networks.
const (
	steadyPace     = 20 * time.Millisecond
	steadyNetworks = 200
)

func (c *clients) steady(ctx context.Context) *steady {
	asking := ctx
	ctx, stop := context.WithCancel(ctx)
	s := &steady{why: &c.lastFailure, stop: stop}
	s.ended.Go(func() {
		tick := time.NewTicker(steadyPace)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			ip := fmt.Sprintf("100.127.%d.1", n%steadyNetworks)
			s.ended.Go(func() { s.tally[c.ask(asking, ip, "steady")].Add(1) })
		}
	})
	return s
}

// end waits for the last answers and returns how many requests were not served,
// and that in words.
func (s *steady) end() (wrong int64, figure string) {
	s.stop()
	s.ended.Wait()
	wrong = s.of(refused) + s.of(blocked) + s.of(failed)
	figure = fmt.Sprintf("%d of %d", wrong, wrong+s.of(served))
	if wrong > 0 {
		figure += fmt.Sprintf(" (%d refused, %d failed", s.of(refused)+s.of(blocked), s.of(failed))
		if s.of(failed) > 0 {
			figure += fmt.Sprintf(", such as: %v", s.why.Load())
		}
		figure += ")"
	}
	return wrong, figure
}

// limitsHold sends one network's worth of requests and more at once, and reports
// whether the surplus was refused and the rest served within the limit.
func (c *clients) limitsHold(ctx context.Context) bool {
	const surplus = 3
	ip, group := c.network()
	var t tally
	var all sync.WaitGroup
	for n := range maxServed + maxPending + surplus {
		all.Go(func() { t[c.ask(ctx, ip(n), group)].Add(1) })
	}
	all.Wait()
	seen, err := c.seen(ctx)
	return err == nil && t.of(served) > 0 && t.of(refused) > 0 && t.of(failed) == 0 && seen.Max[group] <= maxServed
}

// seen is what the origin has counted.
type seen struct {
	Total int            `json:"total"`
	Max   map[string]int `json:"max"`
}

// over counts the groups that had more at once than they may.
func (s seen) over() int {
	n := 0
	for group, most := range s.Max {
		if group != "steady" && most > maxServed {
			n++
		}
	}
	return n
}

func (c *clients) seen(ctx context.Context) (seen, error) {
	var s seen
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.counts+"/", nil)
	if err != nil {
		return s, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&s)
	return s, err
}

// forget lets the origin count anew.
func (c *clients) forget(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.counts+"/reset", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
