package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

const (
	soakBudget  = 64 << 20
	soakPages   = 200_000 // far more than the budget holds
	soakClients = 16
	soakLook    = 100 * time.Millisecond // between two looks at the file
)

// soaked is what a soak found.
type soaked struct {
	requests, hits, bytes atomic.Int64
	file, memory          int64 // at most
}

// soak lets clients read random pages of all sizes through a cache whose budget
// is far smaller, for some time, and checks every byte, the file and the memory.
func soak(ctx context.Context, out io.Writer, duration time.Duration) (err error) {
	b := &bench{}
	if b.dir, err = os.MkdirTemp("", "ccnq-soak-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.build(ctx); err != nil {
		return err
	}
	var c closers
	defer c.close(&err)
	upstream, err := startOrigin(&c, writePattern)
	if err != nil {
		return err
	}
	s, err := b.caching(settings{"CCNQ_CACHE_MAX_SIZE_BYTES": strconv.Itoa(soakBudget), "CCNQ_CACHE_MEMORY_BYTES": strconv.Itoa(soakBudget / 8)})
	if err != nil {
		return err
	}
	e, err := b.startEdge(ctx, &c, upstream, s)
	if err != nil {
		return err
	}
	var found soaked
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	began := time.Now()
	err = traffic.Each(soakClients+1, func(i int) error {
		var err error
		if i == soakClients {
			err = found.watch(ctx, e, filepath.Join(s["CCNQ_CACHE_DIR"], "cache.db"))
		} else {
			err = found.read(ctx, "http://"+e.addr, rand.New(rand.NewPCG(uint64(i), 1)))
		}
		if err != nil {
			cancel()
		}
		return err
	})
	fmt.Fprintf(out, "%v: %d requests, %.0f %% hits, %.1f budgets of %d MiB read; file at most %.2f budgets, memory of the edge at most %d MiB\n",
		time.Since(began).Round(time.Second), found.requests.Load(), 100*float64(found.hits.Load())/float64(max(found.requests.Load(), 1)),
		float64(found.bytes.Load())/soakBudget, soakBudget>>20, float64(found.file)/soakBudget, found.memory>>20)
	switch {
	case err != nil:
		return err
	case found.requests.Load() == 0:
		return errors.New("nothing was read")
	case found.file > soakBudget*3/2:
		return errors.New("the file grew beyond one and a half budgets")
	}
	return nil
}

// pattern is the page of a path: of all sizes up to 1 MiB, small ones mostly.
func pattern(path string) []byte {
	h := fnv.New64a()
	_, _ = io.WriteString(h, path) // never fails
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	size := []int{r.IntN(4 << 10), r.IntN(4 << 10), r.IntN(64 << 10), r.IntN(1 << 20)}[min(r.IntN(12)/3, 3)]
	return bytes.Repeat([]byte(path+" "), size/(len(path)+1)+1)
}

func writePattern(w http.ResponseWriter, r *http.Request) {
	body := pattern(r.URL.Path)
	w.Header().Set("Cache-Control", "max-age="+strconv.Itoa(1+len(body)%60)) // some expire meanwhile
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the edge may be gone
}

// read reads pages, one in two of the popular ones, until ctx ends.
func (f *soaked) read(ctx context.Context, edge string, r *rand.Rand) error {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		n := r.IntN(soakPages)
		if r.IntN(2) == 0 {
			n %= 500
		}
		path := "/page/" + strconv.Itoa(n)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, edge+path, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if ctx.Err() != nil {
			if err == nil {
				resp.Body.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(body, pattern(path)) {
			return fmt.Errorf("%s: status %d, %d bytes that are not the page's (%s): %w", path, resp.StatusCode, len(body), resp.Header.Get("Cache-Status"), err)
		}
		f.requests.Add(1)
		f.bytes.Add(int64(len(body)))
		if resp.Header.Get("X-Cache") == "HIT" {
			f.hits.Add(1)
		}
	}
	return nil
}

// watch looks at the file and the memory until ctx ends.
func (f *soaked) watch(ctx context.Context, e *edge, file string) error {
	tick := time.NewTicker(soakLook)
	defer tick.Stop()
	for {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		f.file = max(f.file, info.Size())
		used, err := e.Memory()
		if err != nil {
			return err
		}
		f.memory = max(f.memory, used)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
