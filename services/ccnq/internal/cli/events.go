package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

func eventsCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{Use: "events", Short: "See the events of a running ccnq"}
	c.flags(cmd)
	cmd.AddCommand(eventsTail(c))
	return cmd
}

func eventsTail(c *client) *cobra.Command {
	var since, filter string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print events as they come, until interrupted",
		Example: `  ccnq events tail
  ccnq events tail --since 2h --subject 'ccnq.v1.events.blocked.>' --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var from time.Time
			if since != "" {
				d, err := parseDuration(since)
				if err != nil {
					return configError{err}
				}
				from = time.Now().Add(-d)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			conn, err := c.connect(ctx, os.Environ())
			if err != nil {
				return err
			}
			defer conn.Close()
			t := &tail{conn: conn, filter: filter, out: printer{w: cmd.OutOrStdout(), json: asJSON}}
			if err := t.run(ctx, from); err != nil && ctx.Err() == nil {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "also those of the last 15m, 24h, 7d, …")
	cmd.Flags().StringVar(&filter, "subject", wire.SubjectEvents, "only subjects of this pattern")
	cmd.Flags().BoolVar(&asJSON, "json", false, "each event as it is, in a line")
	return cmd
}

const (
	// tailPage is the number of past events that are read at once, tailWaiting
	// how many live ones may wait meanwhile.
	tailPage    = 1_000
	tailWaiting = 10_000
	// tailOverlap is how long before its beginning a live event may have been
	// stored.
	tailOverlap = time.Minute
)

// tail prints past events, and then live ones. It makes no consumer.
type tail struct {
	conn   *bus.Conn
	filter string
	out    printer
	seen   map[string]bool // past events that may also come live
}

func (t *tail) run(ctx context.Context, from time.Time) error {
	live := make(chan bus.StreamMessage, tailWaiting)
	lost := make(chan struct{}, 1)
	watch, err := bus.WatchSubject(t.conn, t.filter, func(m bus.StreamMessage) {
		select {
		case live <- m:
		default:
			select {
			case lost <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	defer watch.Stop()
	begun := time.Now()
	if !from.IsZero() {
		t.seen = make(map[string]bool)
		for _, stream := range []string{wire.StreamEvents, wire.StreamRefusals} {
			if err := t.past(ctx, stream, from, begun.Add(-tailOverlap)); err != nil {
				return err
			}
		}
	}
	for {
		select {
		case m := <-live:
			if id := eventID(m.Data); id != "" && t.seen[id] {
				delete(t.seen, id)
				continue
			}
			if err := t.out.write(m); err != nil {
				return err
			}
		case <-lost:
			return errors.New("events come faster than they can be printed; use --subject to see fewer")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// past prints what a stream holds since a time. Events of the overlap are
// remembered.
func (t *tail) past(ctx context.Context, stream string, from, overlap time.Time) error {
	next, err := firstSince(ctx, t.conn, stream, from)
	if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrNoResponders) {
		return fmt.Errorf("there is no stream %s: does a denylist service run?", stream)
	}
	if err != nil {
		return err
	}
	for {
		page, err := bus.DirectGetPage(ctx, t.conn, stream, next, tailPage, t.filter)
		if err != nil {
			return err
		}
		for _, m := range page.Messages {
			if m.Time.After(overlap) {
				t.seen[eventID(m.Data)] = true
			}
			if err := t.out.write(m); err != nil {
				return err
			}
		}
		if page.Done {
			return nil
		}
		next = page.Next
	}
}

// firstSince finds the place of the first message that a stream took at a time
// or later, by halving: times grow with places.
func firstSince(ctx context.Context, conn *bus.Conn, stream string, from time.Time) (uint64, error) {
	low, high := uint64(1), uint64(1)
	older := func(place uint64) (bool, error) {
		page, err := bus.DirectGetPage(ctx, conn, stream, place, 1, ">")
		return err == nil && len(page.Messages) > 0 && page.Messages[0].Time.Before(from), err
	}
	for {
		is, err := older(high)
		if err != nil {
			return 0, err
		}
		if !is || high > 1<<60 {
			break
		}
		low, high = high, 2*high
	}
	for low < high {
		middle := low + (high-low)/2
		is, err := older(middle)
		if err != nil {
			return 0, err
		}
		if is {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}

// eventID names an event, or nothing if that is not one.
func eventID(data []byte) string {
	var event struct {
		ID     string `json:"id"`
		Source string `json:"source"`
	}
	if json.Unmarshal(data, &event) != nil {
		return ""
	}
	return event.Source + " " + event.ID
}

// printer writes events for people, or as they are.
type printer struct {
	w    io.Writer
	json bool
}

func (p printer) write(m bus.StreamMessage) error {
	if p.json {
		var line bytes.Buffer
		if !json.Valid(m.Data) {
			return nil // not an event
		}
		if err := json.Compact(&line, m.Data); err != nil {
			return err
		}
		line.WriteByte('\n')
		_, err := p.w.Write(line.Bytes())
		return err
	}
	_, err := fmt.Fprintln(p.w, printable(describe(m)))
	return err
}

// describe is an event in one line.
func describe(m bus.StreamMessage) string {
	var head struct {
		Type   string          `json:"type"`
		Source string          `json:"source"`
		Time   time.Time       `json:"time"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &head); err != nil {
		return fmt.Sprintf("%s: not an event: %v", m.Subject, err)
	}
	kind := strings.TrimPrefix(head.Type, "ccnq.v1.")
	line := when(head.Time) + " " + kind
	switch head.Type {
	case wire.TypeDenied, wire.TypeWouldDeny:
		d, err := wire.Decode[wire.Denied](head.Data)
		if err != nil {
			return line + ": " + err.Error()
		}
		total := 0
		for _, a := range d.Addresses {
			total += a.Count
		}
		line += fmt.Sprintf(" %s: %d requests of %d addresses at %s:", d.Reason, total, len(d.Addresses), head.Source)
		const most = 3
		for _, a := range d.Addresses[:min(len(d.Addresses), most)] {
			line += fmt.Sprintf(" %s×%d", a.IP, a.Count)
		}
		if len(d.Addresses) > most {
			line += " …"
		}
	case wire.TypeBlocked, wire.TypeUnblocked, wire.TypeWouldBlock:
		b, err := wire.Decode[wire.BlockChange](head.Data)
		if err != nil {
			return line + ": " + err.Error()
		}
		line += fmt.Sprintf(" %s until %s by %s", b.Target, when(b.BlockedUntil), b.By)
		if b.Reason != "" {
			line += ": " + b.Reason
		}
	case wire.TypeStreamReset:
		r, err := wire.Decode[wire.StreamReset](head.Data)
		if err != nil {
			return line + ": " + err.Error()
		}
		line += ": " + r.Why
	}
	return line
}
