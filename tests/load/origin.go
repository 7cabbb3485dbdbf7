package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// page is what origins answer: 1 KiB.
var page = []byte(strings.Repeat("x", 1024))

func writePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(page) // the edge may be gone
}

// startOrigin serves a handler and returns its URL.
func startOrigin(c *closers, handler http.HandlerFunc) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	c.add(func() error {
		err := server.Close()
		if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
	return "http://" + l.Addr().String(), nil
}

// turns is an origin that holds each request until it is told to finish it.
type turns struct{ arrived chan arrival }

// arrival is a request at the origin.
type arrival struct {
	at  time.Time
	end chan chan time.Time
}

// finish ends the request and returns when that was.
func (a arrival) finish() time.Time {
	at := make(chan time.Time)
	a.end <- at
	return <-at
}

func (o *turns) serve(w http.ResponseWriter, r *http.Request) {
	a := arrival{at: time.Now(), end: make(chan chan time.Time)}
	select {
	case o.arrived <- a:
	case <-r.Context().Done():
		return
	}
	select {
	case at := <-a.end:
		at <- time.Now()
		writePage(w, r)
	case <-r.Context().Done():
	}
}

func (o *turns) next(ctx context.Context) (arrival, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	select {
	case a := <-o.arrived:
		return a, nil
	case <-ctx.Done():
		return arrival{}, fmt.Errorf("no request arrives at the origin: %w", ctx.Err())
	}
}
