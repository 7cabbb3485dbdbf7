package faults

import (
	"crypto/sha256"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/pages"
	"github.com/ccnq/ccnq/tests/internal/process"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// library is an edge with a cache, and nothing else, in front of pages.
type library struct {
	*visitor.Visitors
	t        *testing.T
	origin   *pages.Origin
	edge     *process.Service
	settings cluster.Settings
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(rules, []byte(cluster.Everything), 0o600))
	l := &library{Visitors: visitor.New(t), t: t, origin: pages.New(t)}
	l.settings = cluster.Common(l.origin.URL).With(cluster.Settings{
		"CCNQ_CACHE_ENABLED":        "true",
		"CCNQ_CACHE_DIR":            filepath.Join(t.TempDir(), "cache"),
		"CCNQ_CACHE_MAX_SIZE_BYTES": "67108864",
		"CCNQ_CACHE_RULES_FILE":     rules,
	})
	return l
}

// start starts the edge and returns once it is ready.
func (l *library) start() {
	l.t.Helper()
	l.edge = process.StartEdge(l.t, l.settings)
	await.True(l.t, "the edge is ready", func() bool { return l.edge.Ready(l.t) })
}

// read asks for a page, requires the right body, and reports whether it was a hit.
func (l *library) read(number, size int) bool {
	l.t.Helper()
	a := l.Get(l.t, visitor.Request{Edge: l.edge.URL, Host: "site.example", Path: pages.Path(number, size)})
	require.Equal(l.t, http.StatusOK, a.Status)
	// Sums, as a body in a message helps nobody.
	require.Equal(l.t, sha256.Sum256(pages.Body(pages.Path(number, size), size)), sha256.Sum256([]byte(a.Body)), "page %d", number)
	return a.Header.Get("X-Cache") == "HIT"
}

// size of a page: most fit into one record, some take many.
func size(number int) int { return []int{100, 5_000, 30_000, 200_000}[number%4] + number }

// cachePart waits until the edge, which must be ready, says so of its cache.
func (l *library) cachePart(prefix string) {
	l.t.Helper()
	await.True(l.t, "the edge is ready and its cache "+prefix, func() bool {
		r, ok := scrape.Ready(l.t, l.edge.Admin)
		return ok && r.Ready && strings.HasPrefix(r.Parts["cache"], prefix)
	})
}

func TestCache_ARestartKeepsWhatIsStored(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	l.start()
	const number = 40
	for i := range number {
		require.False(t, l.read(i, size(i)))
	}
	l.edge.Stop(t)
	l.start()
	for i := range number {
		require.True(t, l.read(i, size(i)), "page %d", i)
	}
	require.Equal(t, number, l.origin.Asked())
}

// TestCache_AKilledEdgeServesNoTornBody: it is killed while it writes, several
// times over, and every page is right after that.
func TestCache_AKilledEdgeServesNoTornBody(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	const number = 400
	hits := 0
	for round := range 4 {
		l.start()
		// What the last life left behind.
		for i := range number {
			if l.read(i, size(i)) {
				hits++
			}
		}
		var readers sync.WaitGroup
		enough := make(chan struct{}, number)
		for reader := range 4 {
			readers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(reader)))
				for {
					i := number + rng.IntN(20*number)
					a := l.Ask(t.Context(), visitor.Request{Edge: l.edge.URL, Host: "site.example", Path: pages.Path(i, size(i))})
					if a.Err != nil {
						return // killed
					}
					select {
					case enough <- struct{}{}:
					default:
					}
				}
			})
		}
		for range number / 2 {
			await.Value(t, "an answer", enough)
		}
		l.edge.Kill(t)
		readers.Wait()
	}
	require.Positive(t, hits, "what the system had was kept")
}

// TestCache_TwoEdgesInOneFolder: the second serves without a cache, says so once,
// and takes the folder over when it is free.
func TestCache_TwoEdgesInOneFolder(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	l.start()
	first := l.edge
	l.read(1, 1000)
	l.start()
	l.cachePart("degraded: ")
	require.False(t, l.read(1, 1000))
	first.Stop(t)
	l.cachePart("ok")
	require.True(t, l.read(1, 1000), "what the first has stored")
}

// TestCache_AFolderThatCannotBe is no reason not to serve.
func TestCache_AFolderThatCannotBe(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	l.settings["CCNQ_CACHE_DIR"] = filepath.Join(file, "cache")
	l.start()
	l.cachePart("degraded: ")
	for range 3 {
		l.read(1, 1000)
	}
	require.NoError(t, os.Remove(file))
	l.cachePart("ok")
	l.read(1, 1000)
	require.True(t, l.read(1, 1000))
}
