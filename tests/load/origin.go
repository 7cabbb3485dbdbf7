package main

import (
	"errors"
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
