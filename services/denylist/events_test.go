package denylist

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
)

// TestEventExamples checks that the examples for people who write alerts are
// events that every reader takes.
func TestEventExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/events.md")
	require.NoError(t, err)
	parts := strings.Split(string(text), "```json\n")
	require.Len(t, parts, 5)
	var types []string
	note := func(typ string, err error) {
		require.NoError(t, err)
		types = append(types, typ)
	}
	for _, part := range parts[1:] {
		example, _, _ := strings.Cut(part, "```")
		switch {
		case strings.Contains(example, wire.TypeDenied):
			e, err := wire.Decode[wire.Event[wire.Denied]]([]byte(example))
			note(e.Type, err)
		case strings.Contains(example, wire.TypeStreamReset):
			e, err := wire.Decode[wire.Event[wire.StreamReset]]([]byte(example))
			note(e.Type, err)
		default:
			e, err := wire.Decode[wire.Event[wire.BlockChange]]([]byte(example))
			note(e.Type, err)
		}
	}
	require.Equal(t, []string{wire.TypeDenied, wire.TypeBlocked, wire.TypeUnblocked, wire.TypeStreamReset}, types)
	for _, typ := range []string{wire.TypeWouldDeny, wire.TypeWouldBlock} {
		require.Contains(t, string(text), "`"+typ+"`")
	}
}
