package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/tests/load/internal/process"
)

// storeWait bounds what is stored, and counted, in one go.
const storeWait = 3 * time.Minute

// startJetStream starts a NATS server that keeps streams, and connects to it.
func (b *bench) startJetStream(c *closers) (url string, conn *bus.Conn, err error) {
	folder, err := os.MkdirTemp(b.dir, "jetstream-")
	if err != nil {
		return "", nil, err
	}
	if url, err = b.startNATS(c, folder); err != nil {
		return "", nil, err
	}
	conn, err = bus.Connect(bus.Options{URL: url, Name: "load", Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		c.add(func() error { conn.Close(); return nil })
	}
	return url, conn, err
}

// denylist is a running denylist service on a schema of its own.
type denylist struct {
	*process.Process
	admin string
}

// startDenylist returns when the service leads, and the streams are there.
func (b *bench) startDenylist(ctx context.Context, c *closers, nats string) (*denylist, error) {
	own, err := b.newSchema(c)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	d := &denylist{admin: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	env := settings{
		"CCNQ_ADMIN_ADDR": d.admin, "CCNQ_LOG_LEVEL": "warn", "CCNQ_NATS_URL": nats, "CCNQ_QUEUE_ENABLED": "true",
	}
	if d.Process, err = process.Start("the denylist", env.environ(own.settings()), b.command("ccnq-denylist")); err != nil {
		return nil, err
	}
	c.add(d.Stop)
	err = d.Await(ctx, "the denylist is ready", func() bool { return isReady(ctx, d.admin) })
	return d, err
}

// until waits until a metric is at least so large.
func (d *denylist) until(ctx context.Context, metric string, least int) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	return d.AwaitEvery(ctx, 20*time.Millisecond, fmt.Sprintf("%s is %d", metric, least), func() bool {
		value, err := scrape(ctx, d.admin, metric)
		return err == nil && value >= float64(least)
	})
}

// scrape returns a metric that has no labels.
func scrape(ctx context.Context, admin, metric string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), metric+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", metric)
}

// store puts messages into streams and fails if one is not stored.
func store(ctx context.Context, conn *bus.Conn, puts []bus.Put) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	results, err := bus.PutAll(ctx, conn, puts)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

const (
	// perMessage is the number of addresses in one event.
	perMessage = 100
	// deniedRanges is the number of ranges that the addresses are of.
	deniedRanges = 1_000
)

// denials makes events of an edge: every second address is new, the others are
// any that came before.
type denials struct {
	seq uint64 // of the last event
	n   int    // addresses so far
}

// messages makes the next events.
func (d *denials) messages(n int) ([]bus.Put, error) {
	const id = "load"
	puts := make([]bus.Put, n)
	for i := range puts {
		d.seq++
		now := time.Now()
		denied := wire.Denied{OutboxID: id, Seq: d.seq, Reason: wire.DeniedQueueFull}
		for range perMessage {
			known := d.n/2 + 1
			ip := deniedAddress(known - 1) // the new one
			if d.n%2 == 1 {
				ip = deniedAddress(rand.IntN(known))
			}
			d.n++
			denied.Addresses = append(denied.Addresses, wire.DeniedAddress{
				IP: ip, Group: netip.PrefixFrom(ip, 16).Masked(), Count: 1, First: now, Last: now, Path: "/download/file.iso",
			})
		}
		msgID := fmt.Sprintf("%s-%d", id, d.seq)
		event := wire.NewEvent(msgID, wire.EdgeSource(id), wire.TypeDenied, string(denied.Reason), now, denied)
		data, err := json.Marshal(event)
		if err != nil {
			return nil, err
		}
		puts[i] = bus.Put{Subject: fmt.Sprintf(wire.SubjectDenied, denied.Reason, id), Data: data, ID: msgID}
	}
	return puts, nil
}

// deniedAddress is the nth of the addresses, which go round the ranges.
func deniedAddress(n int) netip.Addr {
	group, host := n%deniedRanges, n/deniedRanges
	return netip.AddrFrom4([4]byte{11 + byte(group>>8), byte(group), byte(host >> 8), byte(host)})
}
