package db

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckSchema(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"queue", "_", "a1_b", "user", strings.Repeat("a", 63)} {
		require.NoError(t, CheckSchema(name), name)
	}
	for _, name := range []string{
		"", "Queue", "1a", "a-b", "a.b", `a"b`, "a b", "queue\n", "é", "pg_queue", "pg_", strings.Repeat("a", 64),
	} {
		err := CheckSchema(name)
		require.ErrorIs(t, err, ErrSchema, "%q", name)
	}
}

func TestLockKeyIsOfTheSchema(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, lockKey("queue"), lockKey("queue2"), "schemas must not wait for each other")
}

func FuzzCheckSchema(f *testing.F) {
	for _, seed := range []string{"queue", "", "pg_x", `x"; DROP SCHEMA public; --`, "x\x00", "a\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckSchema(name) != nil {
			return
		}
		for i, c := range []byte(name) {
			ok := c == '_' || 'a' <= c && c <= 'z' || i > 0 && '0' <= c && c <= '9'
			if !ok {
				t.Fatalf("accepted %q", name)
			}
		}
		if len(name) < 1 || len(name) > 63 {
			t.Fatalf("accepted %d bytes", len(name))
		}
	})
}
