package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

// connections is how many clients send at once.
const connections = 64

// load is one kind of request for one program, on connections that stay open.
type load struct {
	to      *edge
	crowd   traffic.Crowd
	request []byte
	status  int // of each response
}

// newLoad connects.
func newLoad(c *closers, to *edge, request []byte, status int) (*load, error) {
	crowd, err := traffic.Gather(to.addr, connections)
	if err != nil {
		return nil, err
	}
	c.add(func() error { crowd.Close(); return nil })
	return &load{to, crowd, request, status}, nil
}

// compare adds the CPU time that two programs use for each request, in
// nanoseconds, once for each round.
func (b *bench) compare(ctx context.Context, pairs *report.Pairs, measured, against *load) error {
	for round := range b.rounds + 1 {
		m, err := b.cpuPerRequest(ctx, measured)
		if err != nil {
			return err
		}
		a, err := b.cpuPerRequest(ctx, against)
		if err != nil {
			return err
		}
		if round > 0 { // the first warms up
			pairs.Add(m, a)
		}
	}
	return nil
}

// cpuPerRequest sends requests and returns the CPU time, in nanoseconds, that
// the program used for each.
func (b *bench) cpuPerRequest(ctx context.Context, l *load) (float64, error) {
	before, err := l.to.CPU()
	if err != nil {
		return 0, err
	}
	if err := l.crowd.Flood(ctx, l.request, b.requests, l.status); err != nil {
		return 0, err
	}
	after, err := l.to.CPU()
	return float64(after-before) / float64(b.requests), err
}

// micros writes nanoseconds.
func micros(ns float64) string {
	return fmt.Sprintf("%.1f µs", ns/float64(time.Microsecond))
}
