package cache

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

// damage changes a byte of what is stored, at the beginning of a marker.
func (s *site) damage(dir, marker string) {
	t := s.t
	t.Helper()
	// A purge returns when it and all before it is on disk, and no longer held in memory for that.
	require.NoError(t, s.store.Purge(t.Context(), store.Purge{Name: "nobody.example/"}))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for _, name := range files {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		at := bytes.Index(data, []byte(marker))
		if at < 0 {
			continue
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{data[at] ^ 1}, int64(at))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return
	}
	t.Fatal("what is stored is not on disk")
}

// TestAStoredBodyThatIsCorrupt is fetched again if nothing of it was sent, and
// otherwise breaks off: no client gets a wrong byte.
func TestAStoredBodyThatIsCorrupt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size, at int
		whole    bool
	}{
		"in the first piece": {100_000, 10, true},
		"in a later piece":   {900_000, 800_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := newSite(t, func(o *Options) { o.Dir, o.MemoryBytes = dir, 0 })
			const marker = "<the page that somebody damages>"
			body := bytes.Repeat([]byte("0123456789"), tt.size/10)
			copy(body[tt.at:], marker)
			s.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				_, _ = w.Write(body)
			})
			s.get("/a").is(t, "MISS", "stored")
			s.damage(dir, marker)
			r := s.ask(http.MethodGet, "/a")
			if tt.whole {
				require.Equal(t, string(body), r.is(t, "MISS", "").body)
			} else {
				require.ErrorIs(t, r.err, io.ErrUnexpectedEOF)
				require.True(t, bytes.HasPrefix(body, []byte(r.body)))
			}
			require.Equal(t, string(body), s.get("/a").body)
			require.Equal(t, string(body), s.get("/a").is(t, "HIT", "").body)
			require.EqualValues(t, 2, s.asked.Load())
		})
	}
}
