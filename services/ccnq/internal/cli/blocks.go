package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccnq/ccnq/pkg/wire"
)

func blocksCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:   "blocks",
		Short: "List, add, remove and explain blocks of a running ccnq",
		Long: `List, add, remove and explain the blocks of the denylist.

The commands speak to the denylist service over NATS: that of ccnq run on this
machine by default.`,
	}
	c.flags(cmd)
	cmd.AddCommand(blocksList(c), blocksAdd(c), blocksRemove(c), blocksExplain(c), blocksRebuild(c))
	return cmd
}

func blocksList(c *client) *cobra.Command {
	var scope string
	var expired, asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the blocks in force",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := c.connect(cmd.Context(), os.Environ())
			if err != nil {
				return err
			}
			defer conn.Close()
			out := newTable(cmd.OutOrStdout(), asJSON, "TARGET", "UNTIL", "SINCE", "BY", "REASON")
			req := wire.ListRequest{Scope: wire.Scope(scope), Limit: wire.MaxList, Expired: expired}
			for {
				reply, err := askDenylist[wire.ListRequest, wire.ListReply](cmd.Context(), conn, wire.SubjectList, req)
				if err != nil {
					return err
				}
				for _, b := range reply.Blocks {
					if err := out.row(b, b.Target, when(b.BlockedUntil), when(b.Since), b.By, b.Reason); err != nil {
						return err
					}
				}
				if req.After = reply.Next; req.After == "" {
					return out.flush()
				}
			}
		},
	}
	cmd.Flags().StringVar(&scope, "scope", "", "only ip or only range")
	cmd.Flags().BoolVar(&expired, "expired", false, "also those that are over")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object in a line")
	return cmd
}

func blocksAdd(c *client) *cobra.Command {
	var duration, reason, by string
	var force bool
	cmd := &cobra.Command{
		Use:   "add TARGET --for DURATION",
		Short: "Block an address or a range; a block that ends later stays",
		Example: `  ccnq blocks add 203.0.113.7 --for 24h --reason 'scraper'
  ccnq blocks add 2001:db8::/48 --for 30d`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := parseDuration(duration)
			if err != nil {
				return configError{err}
			}
			reply, err := order[wire.BlockRequest, wire.BlockReply](cmd.Context(), c, wire.SubjectBlock, wire.BlockRequest{
				Target: args[0], Seconds: int64((d + time.Second - 1) / time.Second), Reason: reason, By: by, Force: force,
			})
			if err != nil {
				return err
			}
			if reply.Warning != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", reply.Warning)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is blocked until %s\n", reply.Target, when(reply.BlockedUntil))
			return nil
		},
	}
	cmd.Flags().StringVar(&duration, "for", "", "how long, such as 90s, 15m, 24h, 30d")
	words(cmd, &reason, &by)
	cmd.Flags().BoolVar(&force, "force", false, "also if that holds a trusted proxy or very many addresses")
	_ = cmd.MarkFlagRequired("for") // the flag exists
	return cmd
}

func blocksRemove(c *client) *cobra.Command {
	var reason, by string
	var keep bool
	cmd := &cobra.Command{
		Use:   "remove TARGET",
		Short: "Lift the block on exactly this address or range, and forgive its denials",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := order[wire.UnblockRequest, wire.UnblockReply](cmd.Context(), c, wire.SubjectUnblock, wire.UnblockRequest{
				Target: args[0], Reason: reason, By: by, KeepCounts: keep,
			})
			if err != nil {
				return err
			}
			if reply.Warning != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", reply.Warning)
			}
			out := cmd.OutOrStdout()
			if reply.Lifted {
				fmt.Fprintf(out, "%s is not blocked any more\n", args[0])
			} else {
				fmt.Fprintf(out, "%s was not blocked\n", args[0])
			}
			if reply.Forgiven > 0 {
				fmt.Fprintf(out, "counts forgiven: %d\n", reply.Forgiven)
			}
			if len(reply.StillBlockedBy) > 0 {
				fmt.Fprintf(out, "still blocked by: %s\n", strings.Join(reply.StillBlockedBy, ", "))
			}
			return nil
		},
	}
	words(cmd, &reason, &by)
	cmd.Flags().BoolVar(&keep, "keep-counts", false, "keep the denials, so that the next one may block again")
	return cmd
}

func blocksExplain(c *client) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain ADDRESS",
		Short: "Say which blocks hold an address, and why",
		Long: `Say which blocks hold an address, and the denials behind them.

The exit code is 0 if there is one, 1 if not, and 2 or 3 if that could not be
found out. A warning says if no edge refuses the address nevertheless.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ip, err := netip.ParseAddr(args[0])
			if err != nil || ip.Zone() != "" {
				return configError{fmt.Errorf("%q is not an address", args[0])}
			}
			reply, err := order[wire.ExplainRequest, wire.ExplainReply](cmd.Context(), c, wire.SubjectExplain, wire.ExplainRequest{IP: ip.Unmap()})
			if err != nil {
				return unknownError{err}
			}
			if reply.Warning != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", reply.Warning)
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(reply)
			} else {
				err = explain(cmd.OutOrStdout(), ip.Unmap(), reply)
			}
			if err == nil && !reply.Blocked {
				err = errNoMatch
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "the answer as JSON")
	return cmd
}

// explain tells an operator why an address is refused.
func explain(w io.Writer, ip netip.Addr, reply wire.ExplainReply) error {
	if reply.Blocked {
		fmt.Fprintf(w, "%s is blocked until %s\n\n", ip, when(reply.BlockedUntil))
		blocks := newTable(w, false, "BLOCK", "UNTIL", "SINCE", "BY", "REASON")
		for _, b := range reply.Blocks {
			if err := blocks.row(b, b.Target, when(b.BlockedUntil), when(b.Since), b.By, b.Reason); err != nil {
				return err
			}
		}
		if err := blocks.flush(); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "%s is not blocked\n", ip)
	}
	if len(reply.Days) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	days := newTable(w, false, "DAY", "ADDRESS", "RANGE", "DENIALS", "EVENTS", "LAST SAMPLE")
	for _, d := range reply.Days {
		sample := ""
		if n := len(d.Samples); n > 0 {
			s := d.Samples[n-1]
			sample = fmt.Sprintf("%s %s %s at %s", when(s.At), s.Reason, strconv.Quote(s.Path), s.Edge)
		}
		err := days.row(d, d.Day, d.IP.String(), d.Group, strconv.FormatInt(d.Count, 10), fmt.Sprintf("%d-%d", d.FirstSeq, d.LastSeq), sample)
		if err != nil {
			return err
		}
	}
	return days.flush()
}

func blocksRebuild(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "rebuild",
		Short: "Make the denylist's tables anew from the events",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := order[wire.RebuildRequest, wire.RebuildReply](cmd.Context(), c, wire.SubjectRebuild, wire.RebuildRequest{By: operator()})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "a rebuild from %d events has begun; blocks stay in force meanwhile\n", reply.Events)
			return nil
		},
	}
}

// words adds the flags for what an operator says about a change.
func words(cmd *cobra.Command, reason, by *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for those who read the list")
	cmd.Flags().StringVar(by, "by", operator(), "who")
}

// operator is the name of who runs the program, cut to what a message takes.
func operator() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username[:min(len(u.Username), wire.MaxWords)]
}

// parseDuration reads a positive time such as 90s, 15m, 24h, 30d or 1d12h.
func parseDuration(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration such as 90s, 15m, 24h or 30d, up to ten years", text)
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || !found && rest == "" {
		return 0, bad
	}
	var d time.Duration
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, bad
		}
	}
	if d < 0 || d > wire.MaxBlock || n > uint64(wire.MaxBlock/(24*time.Hour)) {
		return 0, bad
	}
	d += time.Duration(n) * 24 * time.Hour
	if d <= 0 || d > wire.MaxBlock {
		return 0, bad
	}
	return d, nil
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// table writes rows for people, or one JSON object in a line.
type table struct {
	tabs *tabwriter.Writer
	json *json.Encoder
}

func newTable(w io.Writer, asJSON bool, heads ...string) *table {
	if asJSON {
		return &table{json: json.NewEncoder(w)}
	}
	t := &table{tabs: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t.tabs, strings.Join(heads, "\t"))
	return t
}

// row writes one row. Words that others chose are shown without control
// characters.
func (t *table) row(whole any, cells ...string) error {
	if t.json != nil {
		return t.json.Encode(whole)
	}
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	_, err := fmt.Fprintln(t.tabs, strings.Join(cells, "\t"))
	return err
}

func (t *table) flush() error {
	if t.json != nil {
		return nil
	}
	return t.tabs.Flush()
}

// printable replaces what could move the cursor or colour a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '\ufffd'
	}, text)
}
