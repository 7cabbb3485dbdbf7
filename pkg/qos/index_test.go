package qos

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestIndexOfEqualHashes compares it with a map by key. Three hashes make long chains.
func TestIndexOfEqualHashes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x, entries := make(index), make(map[key]*entry)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			n := rapid.IntRange(0, 12).Draw(t, "key")
			k, hash := key{text: fmt.Sprint(n)}, uint64(n%3)
			found := x.find(hash, &k)
			require.Same(t, entries[k], found)
			if found == nil {
				entries[k] = &entry{key: k, hash: hash}
				x.insert(entries[k])
			} else {
				x.remove(found)
				delete(entries, k)
			}
		}
		for _, e := range entries {
			x.remove(e)
		}
		require.Empty(t, x)
	})
}

// TestQueueIsInOrderOfUse compares it with a sorted list.
func TestQueueIsInOrderOfUse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var list []*entry
		for stamp := range uint64(rapid.IntRange(1, 150).Draw(t, "steps")) {
			switch {
			case len(list) == 0 || rapid.Bool().Draw(t, "new"):
				e := &entry{stamp: stamp}
				q.push(e)
				list = append(list, e)
			case rapid.IntRange(0, 3).Draw(t, "what") == 0:
				q.settle()
				require.Same(t, list[0], q.pop())
				list = list[1:]
			default:
				i := rapid.IntRange(0, len(list)-1).Draw(t, "used")
				e := list[i]
				e.stamp = stamp
				list = append(slices.Delete(list, i, i+1), e)
			}
			for _, e := range list {
				require.LessOrEqual(t, q.horizon(), e.stamp)
			}
		}
		for _, e := range list {
			q.settle()
			require.Equal(t, e.stamp, q.horizon())
			require.Same(t, e, q.pop())
		}
		require.Equal(t, uint64(math.MaxUint64), q.horizon())
	})
}
