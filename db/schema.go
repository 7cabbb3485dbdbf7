package db

import (
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
)

// DefaultSchema is the schema that the seed uses.
const DefaultSchema = "queue"

// maxSchema is the greatest length of a Postgres identifier in bytes
// (NAMEDATALEN − 1); Postgres would cut a longer name without an error.
const maxSchema = 63

// ErrSchema is wrapped by the errors of [CheckSchema].
var ErrSchema = errors.New("invalid schema name")

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// CheckSchema reports whether name may be the name of the schema: it matches
// ^[a-z_][a-z0-9_]*$ as in the seed, has at most 63 bytes, and does not begin
// with pg_, which Postgres keeps for itself.
func CheckSchema(name string) error {
	switch {
	case len(name) > maxSchema:
		return fmt.Errorf("%w: %q… has %d bytes, more than %d", ErrSchema, name[:maxSchema], len(name), maxSchema)
	case !schemaName.MatchString(name):
		return fmt.Errorf("%w: %q does not match %s", ErrSchema, name, schemaName)
	case strings.HasPrefix(name, "pg_"):
		return fmt.Errorf("%w: %q begins with pg_, which Postgres reserves", ErrSchema, name)
	}
	return nil
}

// lockKey returns the key of the advisory lock that guards the migrations of
// one schema. Advisory locks are local to a database.
func lockKey(schema string) int64 {
	h := fnv.New64a()
	h.Write([]byte("ccnq.migrate." + schema))
	return int64(h.Sum64())
}
