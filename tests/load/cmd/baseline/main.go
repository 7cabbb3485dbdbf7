// Command baseline is what the edge is measured against, with nothing in it
// but the standard library:
//
//	baseline proxy URL   httputil.ReverseProxy with a buffer pool
//	baseline refuse      a handler that only writes 429
//	baseline page BYTES  a handler that writes a page of so many bytes
//
// It writes its address to standard output and serves until SIGTERM.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/serve"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "baseline:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var handler http.Handler
	switch {
	case len(args) == 2 && args[0] == "proxy":
		upstream, err := url.Parse(args[1])
		if err != nil {
			return err
		}
		handler = proxy(upstream)
	case len(args) == 1 && args[0] == "refuse":
		handler = http.HandlerFunc(refuse)
	case len(args) == 2 && args[0] == "page":
		n, err := strconv.ParseUint(args[1], 10, 20)
		if err != nil {
			return err
		}
		handler = page(make([]byte, n))
	default:
		return errors.New("usage: baseline proxy URL | baseline refuse | baseline page BYTES")
	}
	return serve.Handler(handler)
}

// refuse is the least that a refusal can be.
func refuse(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, "429 Too Many Requests\n") // the client may be gone
}

// page writes the same bytes as a hit.
func page(body []byte) http.Handler {
	length := []string{strconv.Itoa(len(body))}
	kind := []string{"text/plain"}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Length"], h["Content-Type"] = length, kind
		_, _ = w.Write(body) // the client may be gone
	})
}

// proxy has the same settings of the transport as the edge.
func proxy(upstream *url.URL) http.Handler {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &httputil.ReverseProxy{
		BufferPool: &buffers{},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			DisableCompression:     true,
			ExpectContinueTimeout:  time.Second,
			IdleConnTimeout:        90 * time.Second,
			MaxIdleConnsPerHost:    256,
			MaxResponseHeaderBytes: 256 << 10,
			Protocols:              protocols,
			ResponseHeaderTimeout:  300 * time.Second,
		},
	}
}

type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buf[:]
	}
	return new([bufferSize]byte)[:]
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(buf []byte) { b.pool.Put((*[bufferSize]byte)(buf)) }
