package cache

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
)

func TestMarks(t *testing.T) {
	t.Parallel()
	var m marks
	now := time.Unix(1000, 0)
	a, b := rfc9111.Key{1}, rfc9111.Key{2}
	require.False(t, m.has(a, now))
	m.set(a, now.Add(time.Second))
	require.True(t, m.has(a, now))
	require.False(t, m.has(b, now))
	require.False(t, m.has(a, now.Add(time.Second)), "its time is over")
	require.Zero(t, m.count(), "and so it is forgotten")
	m.set(a, now.Add(time.Second))
	m.remove(a)
	m.remove(b)
	require.False(t, m.has(a, now))
}

func TestMarksAreBounded(t *testing.T) {
	t.Parallel()
	var m marks
	now := time.Unix(1000, 0)
	for i := range uint32(4 * markShards * maxMarks) {
		key := rfc9111.Key{byte(i)}
		binary.BigEndian.PutUint32(key[4:], i)
		m.set(key, now.Add(time.Second))
		require.True(t, m.has(key, now), "the newest is remembered")
	}
	require.Equal(t, markShards*maxMarks, m.count())
}

func TestMarksThatAreRenewedPushNoneOut(t *testing.T) {
	t.Parallel()
	var m marks
	now := time.Unix(1000, 0)
	for i := range uint32(maxMarks) { // all of one shard
		key := rfc9111.Key{}
		binary.BigEndian.PutUint32(key[4:], i)
		m.set(key, now.Add(time.Second))
	}
	require.Equal(t, maxMarks, m.count())
	m.set(rfc9111.Key{}, now.Add(time.Minute))
	require.Equal(t, maxMarks, m.count())
}
