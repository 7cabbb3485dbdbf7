package rules

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// onQuery is a ruleset that matches requests with a query parameter.
func onQuery(name string) string { return `[[{"target":"query","name":"` + name + `"}]]` }

// lockedBuffer is a log that two goroutines may write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

type fileTest struct {
	*File
	attempts chan error // one for each reading after the first
	log      *lockedBuffer
}

func open(t *testing.T, path string) fileTest {
	t.Helper()
	attempts, log := make(chan error, 100), &lockedBuffer{}
	f, err := openFile(path, slog.New(slog.NewTextHandler(log, nil)), func(err error) { attempts <- err })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return fileTest{f, attempts, log}
}

// until waits until the rules match a query with that name.
func (f fileTest) until(t *testing.T, name string) {
	t.Helper()
	r := request(t, "/?"+name)
	for !f.Current().Match(r, OnTimeoutMatch) {
		// The time limit of the whole test run ends a wait in vain.
		if err := <-f.attempts; err != nil {
			t.Logf("not usable yet: %v", err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestFileWrittenInPlace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.json")
	write(t, path, onQuery("a"))
	f := open(t, path)
	f.until(t, "a")
	require.Zero(t, f.Reloads())
	write(t, path, onQuery("b"))
	f.until(t, "b")
	require.Positive(t, f.Reloads())
}

func TestFileReplacedByRename(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.json")
	write(t, path, onQuery("a"))
	f := open(t, path)
	for _, name := range []string{"b", "c"} { // the second time it is another inode
		write(t, path+".new", onQuery(name))
		require.NoError(t, os.Rename(path+".new", path))
		f.until(t, name)
	}
}

// Kubernetes mounts a ConfigMap as rules.json → ..data/rules.json with
// ..data → ..version1, and swaps ..data.
func TestFileInConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	publish := func(version, text string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "rules.json"), text)
		require.NoError(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	publish("..version1", onQuery("a"))
	path := filepath.Join(dir, "rules.json")
	require.NoError(t, os.Symlink(filepath.Join("..data", "rules.json"), path))
	f := open(t, path)
	f.until(t, "a")
	publish("..version2", onQuery("b"))
	f.until(t, "b")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "..version1")))
	publish("..version3", onQuery("c"))
	f.until(t, "c")
}

func TestFileThroughALink(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "real.json")
	write(t, elsewhere, onQuery("a"))
	path := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.Symlink(elsewhere, path))
	f := open(t, path)
	write(t, elsewhere, onQuery("b"))
	f.until(t, "b")
}

func TestFileBroken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.json")
	write(t, path, onQuery("a"))
	f := open(t, path)

	write(t, path, `[[{"target":"nonsense"}]]`)
	for err := range f.attempts { // an empty file may be seen first
		require.Error(t, err)
		if strings.Contains(err.Error(), "nonsense") {
			break
		}
	}
	f.until(t, "a")
	require.Zero(t, f.Reloads())
	failures := f.Failures()
	require.Positive(t, failures)
	require.Contains(t, f.log.String(), "the rules before stay in force")
	require.Contains(t, f.log.String(), `group 1, condition 1, target`)

	require.ErrorContains(t, f.Reload(), "nonsense")
	require.Equal(t, failures+1, f.Failures())
	f.until(t, "a")

	require.NoError(t, os.Remove(path))
	for err := range f.attempts {
		if os.IsNotExist(err) {
			break
		}
	}
	f.until(t, "a")
	write(t, path, onQuery("b"))
	f.until(t, "b")
}

func TestFileReload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.json")
	write(t, path, onQuery("a"))
	f := open(t, path)
	require.NoError(t, f.Close()) // nothing is noticed any more
	require.NoError(t, f.Close())
	write(t, path, slowRules)
	require.NoError(t, f.Reload())
	require.EqualValues(t, 1, f.Reloads())
	require.Zero(t, f.Failures())
	require.Len(t, f.Current().Backtracking(), 1)
	require.Contains(t, f.log.String(), "backtracking engine")
}

func TestOpenFileRefusesWhatLoadRefuses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.json")
	_, err := OpenFile(path, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, os.ErrNotExist)
	write(t, path, "{}")
	_, err = OpenFile(path, slog.New(slog.DiscardHandler))
	require.EqualError(t, err, path+": is an object, must be an array")
}

// Requests are matched while the rules change under them.
func TestFileIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.json")
	write(t, path, onQuery("a"))
	f := open(t, path)
	r := request(t, "/?a&b")
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 1000 {
				if !f.Current().Match(r, OnTimeoutMatch) {
					t.Error("no match")
					return
				}
			}
		})
	}
	for i := range 20 {
		write(t, path+".new", onQuery(string("ab"[i%2])))
		require.NoError(t, os.Rename(path+".new", path))
		require.NoError(t, f.Reload())
	}
	readers.Wait()
}
