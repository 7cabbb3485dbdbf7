package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// gatherQuiet is how long nobody has answered when the answers are taken to
	// be complete: longer than an edge takes for a purge whose disk is slow (2 s).
	// gatherTimeout bounds the wait for all of them.
	gatherQuiet   = 3 * time.Second
	gatherTimeout = 15 * time.Second
)

func cacheCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Remove responses from the caches of all edges",
		Long: `Remove responses from the caches of all edges.

The commands reach the edges over NATS: that of ccnq run on this machine by
default. An edge without NATS is reached at its admin listener instead:
  curl -H 'Content-Type: application/json' http://127.0.0.1:9180/cache/purge \
    -d '{"targets":[{"scope":"host","target":"example.org"}]}'`,
	}
	c.flags(cmd)
	cmd.AddCommand(cachePurge(c))
	return cmd
}

func cachePurge(c *client) *cobra.Command {
	var urls, prefixes, hosts []string
	var by string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "purge --url URL | --prefix URL | --host HOST",
		Short: "Remove what is stored of URLs, URL prefixes and hosts",
		Long: `Remove what is stored of URLs, URL prefixes and hosts, with all variants.

It is effective at once; what was asked of the origin before is not stored
either. Each flag may be given several times. Each edge that answers is shown,
after 3 seconds in which no other has; the exit code is 1 if there is none, or if
one of them has a warning. Edges that are away apply it when they are back, within
a day.`,
		Example: `  ccnq cache purge --url https://example.org/papers/1.pdf
  ccnq cache purge --prefix https://example.org/papers/ --prefix https://example.org/images/
  ccnq cache purge --host example.org`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := wire.PurgeRequest{ID: purgeID(), By: by}
			for _, list := range []struct {
				scope   wire.PurgeScope
				targets []string
			}{{wire.PurgeURL, urls}, {wire.PurgePrefix, prefixes}, {wire.PurgeHost, hosts}} {
				for _, target := range list.targets {
					req.Targets = append(req.Targets, wire.PurgeTarget{Scope: list.scope, Target: target})
				}
			}
			if len(req.Targets) == 0 {
				return configError{errors.New("nothing to purge: give --url, --prefix or --host")}
			}
			if err := req.Validate(); err != nil {
				return configError{err}
			}
			all, err := purge(cmd.Context(), c, req)
			if err != nil {
				return err
			}
			out := newTable(cmd.OutOrStdout(), asJSON, "EDGE", "WARNING")
			warned := false
			for _, edge := range slices.Sorted(maps.Keys(all.Replies)) {
				warning := all.Replies[edge].Warning
				warned = warned || warning != ""
				if err := out.row(edgeAnswer{edge, warning}, edge, warning); err != nil {
					return err
				}
			}
			if err := out.flush(); err != nil {
				return err
			}
			if !all.Stored {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: nobody keeps the purge for edges that are away: no denylist service has made the stream")
			}
			switch {
			case len(all.Replies) == 0:
				return errors.New("no edge answered: none with a cache is connected to NATS")
			case warned:
				return errNoMatch
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&urls, "url", nil, "URL, with its query")
	cmd.Flags().StringArrayVar(&prefixes, "prefix", nil, "beginning of URLs")
	cmd.Flags().StringArrayVar(&hosts, "host", nil, "host, with its port unless that is the default")
	cmd.Flags().StringVar(&by, "by", operator(), "who")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object in a line")
	return cmd
}

// purge asks all edges.
func purge(ctx context.Context, c *client, req wire.PurgeRequest) (purged, error) {
	conn, err := c.connect(ctx, os.Environ())
	if err != nil {
		return purged{}, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	return bus.Gather[wire.PurgeRequest, wire.PurgeReply](ctx, conn, wire.SubjectPurge, wire.SubjectPurged, req, gatherQuiet)
}

// edgeAnswer is what one edge says of a purge.
type edgeAnswer struct {
	Edge    string `json:"edge"`
	Warning string `json:"warning,omitempty"`
}

type purged = bus.Gathered[wire.PurgeReply]

func purgeID() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}
