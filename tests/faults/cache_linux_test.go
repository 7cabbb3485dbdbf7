package faults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/scrape"
)

// TestCache_DiskFull: pages are served, what was stored before as well; the fault is
// counted and logged once; and when there is room again, pages are stored again.
func TestCache_DiskFull(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	l.settings["CCNQ_CACHE_MEMORY_BYTES"] = "0"
	l.start()
	const page = 100_000
	l.read(1, page)
	await.True(t, "the first page is on disk", func() bool {
		m := scrape.Get(t, l.edge.Admin)
		return m.Value(t, "ccnq_cache_queued_bytes") == 0 && m.Value(t, "ccnq_cache_written_bytes_total") > page
	})
	l.edge.LimitFiles(t, 64<<10)
	next := 2
	await.True(t, "a write has failed", func() bool {
		l.read(next, page)
		next++
		return scrape.Get(t, l.edge.Admin).Value(t, "ccnq_cache_write_failures_total") > 0
	})
	l.cachePart("degraded: ")
	for i := range 20 {
		l.read(next+i, page)
	}
	require.True(t, l.read(1, page), "what is stored is read")
	require.Equal(t, 1, l.edge.Logged("cannot be written"), "the fault is logged once")
	l.edge.LimitFiles(t)
	await.True(t, "pages are stored again", func() bool {
		l.read(next, page)
		return l.read(next, page)
	})
	await.True(t, "the edge says so", func() bool {
		next++
		l.read(next, page) // the next write tells
		r, ok := scrape.Ready(t, l.edge.Admin)
		return ok && r.Parts["cache"] == "ok"
	})
}
