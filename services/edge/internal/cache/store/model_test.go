package store

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestModel compares a store that has room for everything with a map, over
// random sequences of all that can be done, restarts and full memory included.
func TestModel(t *testing.T) {
	t.Parallel()
	type entry struct {
		head string
		body []byte
	}
	rapid.Check(t, func(rt *rapid.T) {
		ts := open(t, t.TempDir(), func(o *Options[string]) {
			o.MemoryBytes = rapid.SampledFrom([]int64{0, 100_000, 8 << 20}).Draw(rt, "memory")
		})
		defer ts.stop()
		model := make(map[int]entry)
		type held struct {
			it *Item[string]
			entry
		}
		var readers []held
		since := make(map[int]Generation) // fetches under way
		key := rapid.IntRange(0, 11)
		size := rapid.OneOf(rapid.IntRange(0, 3_000), rapid.SampledFrom(sizes[:11]))
		version := 0
		body := func() []byte {
			version++
			return bodyOf(version, version, size.Draw(rt, "size"))
		}
		put := func(n int, gen Generation, e entry) bool {
			return ts.Put(Entry[string]{Key: keyOf(n), Name: nameOf(n), Since: gen, Head: e.head, Body: [][]byte{e.body}, Until: noon.Add(hour)})
		}
		purged := func(n int, p Purge) bool {
			return p.Prefix && strings.HasPrefix(nameOf(n), p.Name) || p.Name == nameOf(n)
		}
		var purges []Purge // all of them, so a Generation is a place in it
		base := Generation(0)
		rt.Repeat(map[string]func(*rapid.T){
			"Put": func(rt *rapid.T) {
				n := key.Draw(rt, "key")
				b := body()
				e := entry{fmt.Sprint("head ", version), b}
				require.True(rt, put(n, ts.Generation(), e))
				model[n] = e
			},
			"Update": func(rt *rapid.T) {
				n := key.Draw(rt, "key")
				it, ok := ts.Get(keyOf(n))
				if !ok {
					return
				}
				defer it.Close()
				version++
				head := fmt.Sprint("updated ", version)
				require.True(rt, ts.Update(it, head, noon.Add(hour)))
				model[n] = entry{head, model[n].body}
			},
			"Delete": func(rt *rapid.T) {
				n := key.Draw(rt, "key")
				ts.Delete(keyOf(n))
				delete(model, n)
			},
			"BeginFetch": func(rt *rapid.T) { since[key.Draw(rt, "key")] = ts.Generation() },
			"EndFetch": func(rt *rapid.T) {
				n := key.Draw(rt, "key")
				gen, ok := since[n]
				if !ok {
					return
				}
				delete(since, n)
				forbidden := false
				for _, p := range purges[gen-base:] {
					forbidden = forbidden || purged(n, p)
				}
				e := entry{"fetched", body()}
				require.Equal(rt, !forbidden, put(n, gen, e))
				if !forbidden {
					model[n] = e
				}
			},
			"Purge": func(rt *rapid.T) {
				n := key.Draw(rt, "key")
				p := Purge{Name: nameOf(n), Prefix: rapid.Bool().Draw(rt, "prefix")}
				if p.Prefix {
					p.Name = p.Name[:rapid.IntRange(1, len(p.Name)).Draw(rt, "length")]
				}
				require.NoError(rt, ts.Store.Purge(context.Background(), p))
				purges = append(purges, p)
				for m := range model {
					if purged(m, p) {
						delete(model, m)
					}
				}
			},
			"Hold": func(rt *rapid.T) {
				n := key.Draw(rt, "key")
				if it, ok := ts.Get(keyOf(n)); ok {
					readers = append(readers, held{it, model[n]})
				}
			},
			"Release": func(*rapid.T) {
				for _, r := range readers {
					require.Equal(rt, r.head, r.it.Head())
					require.True(rt, bytes.Equal(r.body, content(t, r.it)))
					r.it.Close()
				}
				readers = nil
			},
			"Flush":  func(*rapid.T) { ts.flush(t) },
			"Forget": func(*rapid.T) { ts.cold(t) },
			"Restart": func(*rapid.T) {
				for _, r := range readers {
					r.it.Close()
				}
				readers = nil
				clear(since)
				ts.restart(t)
				purges, base = nil, ts.Generation()
			},
			"": func(rt *rapid.T) {
				for n := range 12 {
					head, b, ok := ts.read(t, n)
					e, want := model[n]
					require.Equal(rt, want, ok, "entry %d", n)
					require.Equal(rt, e.head, head)
					require.True(rt, bytes.Equal(e.body, b), "body of entry %d", n)
				}
				require.Empty(rt, ts.Degraded())
			},
		})
		for _, r := range readers {
			r.it.Close()
		}
	})
}

// TestEviction is that what is read stays, and what was only seen once goes.
func TestEviction(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir(), func(o *Options[string]) { o.MaxBytes = 4 << 20 })
	hot := bodyOf(0, 0, 10_000)
	require.True(t, ts.add(0, "hot", hot))
	for n := 1; n < 3_000; n++ {
		for !ts.add(n, "", bodyOf(n, 0, 10_000)) {
			ts.flush(t)
		}
		if n%50 == 0 {
			ts.requireHas(t, 0, "hot", hot)
			ts.flush(t)
		}
	}
	ts.requireHas(t, 0, "hot", hot)
	_, _, ok := ts.read(t, 1)
	require.False(t, ok)
	require.Greater(t, ts.Len(), 250)
}

// TestPurges is what a purge hits, before and after the file is cleaned.
func TestPurges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		purge Purge
		left  int
	}{
		{"OneName", Purge{Name: nameOf(7)}, 29},
		{"NotAPrefix", Purge{Name: "host1.example/page/"}, 30},
		{"Host", Purge{Name: "host1.example/", Prefix: true}, 20},
		{"Part", Purge{Name: "host1.example/page/1", Prefix: true}, 25},
		{"Everything", Purge{Prefix: true}, 0},
		{"LessThanAHost", Purge{Name: "host", Prefix: true}, 0},
		{"OtherHost", Purge{Name: "host1.example.org/", Prefix: true}, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ts := open(t, t.TempDir())
			for n := range 30 {
				require.True(t, ts.add(n, "", bodyOf(n, 0, 1000)))
			}
			before := ts.Generation()
			ts.cold(t)
			require.NoError(t, ts.Purge(t.Context(), c.purge))
			left := 0
			for n := range 30 {
				_, _, ok := ts.read(t, n)
				require.Equal(t, !c.purge.matches(nameOf(n)), ok, nameOf(n))
				if ok {
					left++
				}
			}
			require.Equal(t, c.left, left)
			require.Eventually(t, func() bool { return ts.Len() == left }, patience, tick)
			for n := range 30 {
				require.Equal(t, !c.purge.matches(nameOf(n)), ts.Put(Entry[string]{
					Key: keyOf(n), Name: nameOf(n), Since: before, Until: noon.Add(hour),
				}), "a fetch that was begun before")
			}
			for n := range 30 {
				require.True(t, ts.add(n, "", nil), "a fetch that was begun after")
			}
			ts.restart(t)
			require.Equal(t, 30, ts.Len())
		})
	}
}

// TestManyPurges are more than are remembered.
func TestManyPurges(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir())
	before := ts.Generation()
	for n := range 2_000 {
		require.True(t, ts.add(n, "", bodyOf(n, 0, 100)))
	}
	var all []Purge
	for n := range maxPurges + 10 {
		all = append(all, Purge{Name: nameOf(n)})
	}
	require.NoError(t, ts.Purge(t.Context(), all...))
	require.Eventually(t, func() bool { return ts.Len() == 0 }, patience, tick)
	require.False(t, ts.Put(Entry[string]{Key: keyOf(9_999), Name: nameOf(9_999), Since: before}), "not known whether it was purged")
	require.True(t, ts.add(9_999, "", nil))
	require.Error(t, ts.Purge(t.Context(), Purge{}))
	require.Error(t, ts.Purge(t.Context(), Purge{Name: strings.Repeat("x", MaxName+1)}))
	require.NoError(t, ts.Purge(t.Context()))
}
