package main

import (
	"context"
	"fmt"
	"strings"
)

// theft tries what stolen credentials are good for.
func (t *trial) theft(ctx context.Context) error {
	const target = "198.18.0.1"
	if out, err := t.command(ctx, "operator", "blocks", "add", target, "--for", "1h"); err != nil {
		return fmt.Errorf("the operator cannot block: %w %s", err, out)
	}
	for user, subjects := range map[string][]string{
		"edge": {
			"$KV.CCNQ_BLOCKS.ip.198-18-0-1", "ccnq.v1.denylist.unblock", "ccnq.v1.events.unblocked.ip",
			"$JS.API.CONSUMER.CREATE.CCNQ_EVENTS", "$JS.API.CONSUMER.CREATE.KV_CCNQ_BLOCKS.mine", "$JS.API.CONSUMER.DURABLE.CREATE.CCNQ_EVENTS.mine",
			"$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.DELETE.CCNQ_EVENTS", "$JS.API.STREAM.PURGE.KV_CCNQ_BLOCKS",
			"ccnq.v1.edge.other.promoted", "+>", "+ccnq.v1.events.>", "+ccnq.v1.queue.>", "+_INBOX_operator.>",
		},
		"coordinator": {
			"$KV.CCNQ_BLOCKS.ip.198-18-0-1", "ccnq.v1.denylist.unblock", "$JS.API.STREAM.DELETE.CCNQ_EVENTS", "$JS.API.CONSUMER.CREATE.CCNQ_EVENTS", "+ccnq.v1.events.>",
		},
		"alerts": {
			"$KV.CCNQ_BLOCKS.ip.198-18-0-1", "ccnq.v1.denylist.unblock", "$JS.API.CONSUMER.CREATE.CCNQ_EVENTS.mine",
			"ccnq.v1.events.denied.queue-full.x", "+ccnq.v1.queue.>", "+$KV.CCNQ_BLOCKS.>",
		},
	} {
		allowed, err := t.steal(ctx, user, subjects...)
		if err != nil {
			return err
		}
		t.note(fmt.Sprintf("stolen credential of %s: of %d attempts succeeded", user, len(subjects)), fmt.Sprint(strings.Count(allowed, "allowed: ")), "0", allowed == "")
	}
	_, err := t.command(ctx, "edge", "blocks", "remove", target)
	t.note("an edge's credential lifts a block", verdict(err), "refused", verdict(err) == "refused")
	out, err := t.command(ctx, "operator", "blocks", "explain", target)
	t.note("the block is still in force", fmt.Sprint(strings.Contains(out, "blocked")), "true", err == nil && strings.Contains(out, "blocked"))
	if _, err := t.command(ctx, "operator", "blocks", "remove", target); err != nil {
		return err
	}

	// Nobody else can be reached from outside, and an edge cannot reach Postgres.
	ports, err := t.compose(ctx, "ps", "--format", "{{.Service}} {{.Ports}}")
	if err != nil {
		return err
	}
	published := map[string]bool{}
	for line := range strings.Lines(ports) {
		if service, at, _ := strings.Cut(line, " "); strings.Contains(at, "->") {
			published[service] = true
		}
	}
	delete(published, "origin") // the tests' own
	t.note("services with a published port", fmt.Sprint(len(published)), "the front alone", len(published) == 1 && published["front"])
	ids, err := t.containers(ctx, "edge")
	if err != nil {
		return err
	}
	networks, err := t.run(ctx, "inspect", "-f", "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}", ids[0])
	t.note("networks of an edge", strings.ReplaceAll(networks, t.project+"_", ""), "not the database's", err == nil && !strings.Contains(networks, "database"))
	return nil
}

// verdict tells a request that NATS did not pass on from what else can fail.
func verdict(err error) string {
	switch {
	case err == nil:
		return "done"
	case strings.Contains(err.Error(), "the denylist service did not answer"):
		return "refused"
	}
	return err.Error()
}
