package e2e

import (
	"crypto/sha256"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/pages"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// TestCache_ASlowReaderOfWhatIsEvicted: a hit of 10 MiB is read to its right end,
// however often its room has been given to others meanwhile.
func TestCache_ASlowReaderOfWhatIsEvicted(t *testing.T) {
	t.Parallel()
	const size, budget = 10 << 20, 88 << 20
	o, v := pages.New(t), visitor.New(t)
	e := cluster.StartEdge(t, caching(t).With(cluster.Settings{
		"CCNQ_ADMIN_ADDR": "127.0.0.1:0", "CCNQ_PORT": "0", "CCNQ_SHUTDOWN_DELAY_MS": "0",
		"CCNQ_UPSTREAM_URL":              o.URL,
		"CCNQ_CACHE_MAX_SIZE_BYTES":      strconv.Itoa(budget),
		"CCNQ_CACHE_MAX_ITEM_SIZE_BYTES": strconv.Itoa(size),
		"CCNQ_CACHE_MEMORY_BYTES":        "1048576",
	}))
	path := pages.Path(0, size)
	xCache(t, "MISS", v.Get(t, visitor.Request{Edge: e.URL, Path: path}))
	resp, err := v.Open(t.Context(), visitor.Request{Edge: e.URL, Path: path})
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, "HIT", resp.Header.Get("X-Cache"))
	sum := sha256.New()
	_, err = io.CopyN(sum, resp.Body, 1000)
	require.NoError(t, err)

	for i := 1; scrape.Get(t, e.Admin).Sum("ccnq_cache_evictions_total", `reason="size"`) < 12; i++ {
		a := v.Get(t, visitor.Request{Edge: e.URL, Path: pages.Path(i, size)})
		require.Len(t, a.Body, size)
	}
	_, err = io.Copy(sum, resp.Body)
	require.NoError(t, err)
	want := sha256.Sum256(pages.Body(path, size))
	require.Equal(t, want[:], sum.Sum(nil))
	await.True(t, "the file is within its bounds", func() bool {
		return scrape.Get(t, e.Admin).Value(t, "ccnq_cache_file_bytes") <= 1.5*budget
	})
}
