package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Channel is the channel on which a change of a block by somebody else than
// the projector is notified, with an empty payload. Channels belong to the
// database, so schemas that share one wake each other's listeners.
const Channel = "ccnq_denylist"

// Listen calls wake once it listens, since anything may have happened before,
// and whenever a change is notified, until ctx ends or the connection is lost.
// It needs a session of its own: a pooler that shares sessions between
// transactions does not deliver notifications. The error is never nil.
func Listen(ctx context.Context, conn *pgx.Conn, wake func()) error {
	if _, err := conn.Exec(ctx, "LISTEN "+Channel); err != nil {
		return fmt.Errorf("denylist listen: %w", err)
	}
	for {
		wake()
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return fmt.Errorf("denylist listen: %w", err)
		}
	}
}
