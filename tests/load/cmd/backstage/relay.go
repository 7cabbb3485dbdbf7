package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ccnq/ccnq/pkg/wire"
)

// relayTimeout bounds the wait for a coordinator.
const relayTimeout = 10 * time.Second

// relay carries the questions of edges on one server to coordinators on
// another, and what comes back. Without memo it takes full_for_ms out of the
// replies, so that the edges ask each time.
type relay struct {
	edges, coordinators *nats.Conn
	memo                bool
}

func runRelay(ctx context.Context, edges, coordinators string, memo bool) error {
	r := relay{memo: memo}
	var err error
	if r.edges, err = nats.Connect(edges); err != nil {
		return err
	}
	defer r.edges.Close()
	if r.coordinators, err = nats.Connect(coordinators); err != nil {
		return err
	}
	defer r.coordinators.Close()
	_, err = r.edges.Subscribe("ccnq.v1.queue.>", func(m *nats.Msg) { go r.ask(m) })
	if err != nil {
		return err
	}
	_, err = r.coordinators.Subscribe(wire.SubjectPromoted, func(m *nats.Msg) { _ = r.edges.Publish(m.Subject, m.Data) })
	if err := errors.Join(err, r.edges.Flush(), r.coordinators.Flush()); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

// ask passes on one question. One that gets no answer is not answered, and the
// edge asks again.
func (r *relay) ask(m *nats.Msg) {
	reply, err := r.coordinators.Request(m.Subject, m.Data, relayTimeout)
	if err != nil {
		return
	}
	data := reply.Data
	if strings.HasPrefix(m.Subject, strings.TrimSuffix(wire.SubjectAdmit, "*")) && len(reply.Header) == 0 {
		var admit wire.AdmitReply
		if json.Unmarshal(data, &admit) != nil {
			return
		}
		if !r.memo {
			admit.FullForMS = 0
		}
		if data, err = json.Marshal(admit); err != nil {
			return
		}
	}
	_ = m.RespondMsg(&nats.Msg{Header: reply.Header, Data: data})
}
