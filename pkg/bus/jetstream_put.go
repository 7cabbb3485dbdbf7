package bus

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// putWindow is how many messages of a [PutAll] may be on their way
	// unacknowledged; putWindowBytes is how many bytes. More gains no speed and
	// overruns the server.
	putWindow      = 2_048
	putWindowBytes = 4 << 20
)

// Put is one message for a stream.
type Put struct {
	Subject string
	Data    []byte
	// ID is what the stream knows a repetition by, see [PublishAcked]; may be
	// empty.
	ID string
	// TTL is how long the message lives, rounded up to whole seconds, at least
	// one; 0 means as long as the stream keeps messages. The stream must allow
	// it.
	TTL time.Duration
	// Expect is the place of the subject's last message, 0 if there must be
	// none; it is heeded when Conditional is set, and a difference is an
	// [ErrConflict].
	Expect      uint64
	Conditional bool
}

// PutResult is what became of a [Put].
type PutResult struct {
	// Sequence is the place of the message in the stream.
	Sequence uint64
	// Err is nil when the message is stored; else see [PublishAcked].
	Err error
}

// PutBlock is [PutAll] for one message.
func PutBlock(ctx context.Context, c *Conn, put Put) (uint64, error) {
	results, err := PutAll(ctx, c, []Put{put})
	if err != nil {
		return 0, err
	}
	return results[0].Sequence, results[0].Err
}

// PutAll sends messages in order, many at a time, and waits for the stream's
// answers until ctx ends (one without a deadline gets five seconds). Each
// message has its own result, at the same place; those without an answer have
// [ErrTimeout], or [ErrDisconnected] if they could not be sent. The second
// result is an error only if nothing was sent.
func PutAll(ctx context.Context, c *Conn, puts []Put) ([]PutResult, error) {
	if !c.nc.IsConnected() {
		return nil, fmt.Errorf("store %d messages: %w", len(puts), ErrDisconnected)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	inbox := c.nc.NewInbox()
	acks := make(chan *nats.Msg, min(putWindow, len(puts)))
	sub, err := c.nc.ChanSubscribe(inbox+".*", acks)
	if err != nil {
		return nil, translate("store messages", err)
	}
	defer func() { _ = sub.Unsubscribe() }()

	p := putting{puts: puts, results: make([]PutResult, len(puts)), answered: make([]bool, len(puts)), inbox: inbox + "."}
	for next := 0; next < len(puts) || p.open > 0; {
		for next < len(puts) && (p.open == 0 || p.open < putWindow && p.openBytes+len(puts[next].Data) <= putWindowBytes) {
			p.send(c.nc, next)
			next++
		}
		if p.open == 0 {
			continue
		}
		select {
		case msg := <-acks:
			p.answer(msg)
		case <-ctx.Done():
			p.giveUp(ctx)
			return p.results, nil
		}
	}
	return p.results, nil
}

// putting is one PutAll under way.
type putting struct {
	puts      []Put
	results   []PutResult
	answered  []bool
	inbox     string
	open      int // sent and not answered
	openBytes int
}

func (p *putting) send(nc *nats.Conn, i int) {
	put := p.puts[i]
	msg := &nats.Msg{Subject: put.Subject, Reply: p.inbox + strconv.Itoa(i), Data: put.Data, Header: nats.Header{}}
	if put.ID != "" {
		msg.Header.Set(nats.MsgIdHdr, put.ID)
	}
	if put.TTL > 0 {
		msg.Header.Set(nats.MsgTTLHdr, strconv.FormatInt(int64((put.TTL+time.Second-1)/time.Second), 10))
	}
	if put.Conditional {
		msg.Header.Set(nats.ExpectedLastSubjSeqHdr, strconv.FormatUint(put.Expect, 10))
	}
	if err := nc.PublishMsg(msg); err != nil {
		p.results[i].Err = translate("store "+put.Subject, err)
		p.answered[i] = true
		return
	}
	p.open++
	p.openBytes += len(put.Data)
}

// answer takes one acknowledgement; one that nobody waits for is dropped.
func (p *putting) answer(msg *nats.Msg) {
	i, err := strconv.Atoi(strings.TrimPrefix(msg.Subject, p.inbox))
	if err != nil || i < 0 || i >= len(p.puts) || p.answered[i] {
		return
	}
	p.answered[i] = true
	p.open--
	p.openBytes -= len(p.puts[i].Data)
	sequence, err := parseAck(msg)
	if err != nil {
		p.results[i].Err = fmt.Errorf("store %s: %w", p.puts[i].Subject, err)
		return
	}
	p.results[i].Sequence = sequence
}

// giveUp fills in the results of all that has no answer.
func (p *putting) giveUp(ctx context.Context) {
	for i := range p.puts {
		if !p.answered[i] {
			p.results[i].Err = translate("store "+p.puts[i].Subject, ctx.Err())
		}
	}
}
