// Package traffic sends HTTP/1.1 requests at little cost to the sender, so
// that what serves them gets most of the machine. It reads responses that have
// a Content-Length and no more than a browser's share of header fields, which
// is all that the programs under measurement send.
package traffic

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// patience bounds the wait for one response.
const patience = 2 * time.Minute

// Request returns the bytes of a GET as a browser would send it, for a client
// with the given address.
func Request(path, client string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\n" +
		"Host: www.example.org\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n" +
		"Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n" +
		"Accept-Language: en-US,en;q=0.5\r\n" +
		"Accept-Encoding: gzip, deflate, br\r\n" +
		"X-Forwarded-For: " + client + "\r\n\r\n")
}

// Conn is a kept-alive connection. It belongs to one goroutine.
type Conn struct {
	conn   net.Conn
	reader *bufio.Reader
}

// Dial connects to a host and port.
func Dial(addr string) (*Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, reader: bufio.NewReaderSize(conn, 2048)}, nil
}

// Close closes the connection.
func (c *Conn) Close() { _ = c.conn.Close() }

// Do sends a request and returns the status of the response once that has been
// read to its end.
func (c *Conn) Do(request []byte) (status int, err error) {
	if err := c.Send(request); err != nil {
		return 0, err
	}
	return c.Receive()
}

// Send sends a request. [Conn.Receive] must follow before the next one.
func (c *Conn) Send(request []byte) error {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := c.conn.Write(request)
	return err
}

var contentLength = []byte("Content-Length: ")

// Receive reads a response to its end and returns the status.
func (c *Conn) Receive() (status int, err error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < len("HTTP/1.1 200 ") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, fmt.Errorf("%q is no status line", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, fmt.Errorf("%q is no status line", line)
	}
	length := -1
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if line = bytes.TrimSuffix(line, []byte("\r\n")); len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, contentLength); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, fmt.Errorf("%q is no length", value)
			}
		}
	}
	if length < 0 {
		return 0, errors.New("a response has no Content-Length")
	}
	if _, err := c.reader.Discard(length); err != nil {
		return 0, fmt.Errorf("a body ended early: %w", err)
	}
	return status, nil
}

// Crowd is a number of connections to one server.
type Crowd []*Conn

// Gather makes so many connections to a host and port.
func Gather(addr string, n int) (Crowd, error) {
	var c Crowd
	for range n {
		conn, err := Dial(addr)
		if err != nil {
			c.Close()
			return nil, err
		}
		c = append(c, conn)
	}
	return c, nil
}

// Close closes the connections.
func (c Crowd) Close() {
	for _, conn := range c {
		conn.Close()
	}
}

// Flood sends the same request a number of times, over all connections at
// once, and requires the same status of each response.
func (c Crowd) Flood(ctx context.Context, request []byte, requests, want int) error {
	var left atomic.Int64
	left.Store(int64(requests))
	return Each(len(c), func(i int) error {
		for left.Add(-1) >= 0 && ctx.Err() == nil {
			status, err := c[i].Do(request)
			if err != nil {
				return err
			}
			if status != want {
				return fmt.Errorf("a response has status %d, want %d", status, want)
			}
		}
		return ctx.Err()
	})
}

// Each runs n functions at once and returns what went wrong in the first that
// failed.
func Each(n int, run func(i int) error) error {
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for i := range n {
		wg.Go(func() {
			if err := run(i); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	wg.Wait()
	return first
}
