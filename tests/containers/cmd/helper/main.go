// Command helper is what the container tests put into containers of their own:
// an origin that counts, a thief that tries what a credential is good for, and a
// health check for programs that have none.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "origin":
		err = origin()
	case len(os.Args) > 2 && os.Args[1] == "thief":
		err = thief(os.Args[2:])
	case len(os.Args) == 3 && os.Args[1] == "ready":
		err = ready(os.Args[2])
	default:
		err = fmt.Errorf("usage: helper origin | helper ready ADDRESS | helper thief SUBJECT... (+SUBJECT subscribes)")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	// slow is how long the origin works on a page.
	slow = 100 * time.Millisecond
	// groupField names what the origin counts a request under.
	groupField = "Test-Group"
)

// counts is what the origin has seen since the last reset.
type counts struct {
	mu    sync.Mutex
	now   map[string]int
	Total int            `json:"total"`
	Max   map[string]int `json:"max"`
}

// origin serves pages on 8080, and on 8081 what it counted.
func origin() error {
	c := &counts{now: map[string]int{}, Max: map[string]int{}}
	admin := http.NewServeMux()
	admin.HandleFunc("POST /reset", func(http.ResponseWriter, *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.Total, c.Max = 0, map[string]int{}
	})
	admin.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = json.NewEncoder(w).Encode(c) // the test is gone
	})
	failed := make(chan error, 2)
	for addr, handler := range map[string]http.Handler{":8080": http.HandlerFunc(c.page), ":8081": admin} {
		server := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
		go func() { failed <- server.ListenAndServe() }()
	}
	return <-failed
}

func (c *counts) page(_ http.ResponseWriter, r *http.Request) {
	group := r.Header.Get(groupField)
	c.add(group, 1)
	defer c.add(group, -1)
	select {
	case <-time.After(slow):
	case <-r.Context().Done():
	}
}

func (c *counts) add(group string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[group] += n
	if n > 0 {
		c.Total++
		c.Max[group] = max(c.Max[group], c.now[group])
	}
}

// ready asks an admin listener whether its program is ready.
func ready(addr string) error {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + addr + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", resp.Status)
	}
	return nil
}

// thief tries subjects with a credential that it has, and prints each that NATS
// allows.
func thief(subjects []string) error {
	read := func(name string) string {
		content, err := os.ReadFile("/run/credentials/" + name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(content))
	}
	errs := make(chan error, 100)
	nc, err := nats.Connect("nats://nats:4222", nats.UserInfo(read("nats-user"), read("nats-password")),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err }))
	if err != nil {
		return err
	}
	defer nc.Close()
	for _, subject := range subjects {
		if name, ok := strings.CutPrefix(subject, "+"); ok {
			_, err = nc.SubscribeSync(name)
		} else {
			err = nc.Publish(subject, []byte(`{"target":"198.18.0.1"}`))
		}
		if err != nil {
			return err
		}
		if err := nc.FlushTimeout(5 * time.Second); err != nil {
			return err
		}
		select {
		case err := <-errs: // it came before the answer to the flush
			if !strings.Contains(err.Error(), "Permissions Violation") {
				return err
			}
		case <-time.After(time.Second):
			fmt.Println("allowed:", subject)
		}
	}
	return nil
}
