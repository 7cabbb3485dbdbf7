package qos

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestIndexEqualsMap has long runs of slots: few homes, some of which wrap around.
func TestIndexEqualsMap(t *testing.T) {
	t.Parallel()
	homes := []uint64{0, 1, 6, 7, 1 << 20}
	rapid.Check(t, func(t *rapid.T) {
		var x index
		entries, hashes := make(map[key]*entry), make(map[key]uint64)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			n := rapid.IntRange(0, 25).Draw(t, "key")
			k, hash := key{text: fmt.Sprint(n)}, homes[n%len(homes)]<<32|uint64(n%2)
			hashes[k] = hash
			found := x.find(hash, &k)
			require.Same(t, entries[k], found)
			if found == nil {
				entries[k] = &entry{key: k}
				x.insert(hash, entries[k])
			} else {
				x.remove(hash, found)
				delete(entries, k)
			}
			require.Equal(t, len(entries), x.used)
		}
		for k, e := range entries {
			require.Same(t, e, x.find(hashes[k], &k))
			x.remove(hashes[k], e)
		}
		for _, s := range x.slots {
			require.Nil(t, s.entry)
		}
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
