package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/postgres"
	"github.com/ccnq/ccnq/services/ccnq/internal/credentials"
	"github.com/ccnq/ccnq/services/ccnq/internal/demo"
)

func healthCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "health",
		Short: "Ask the program that runs on this machine whether it is ready; the exit code is 0 if it is, 1 if not",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var env struct {
				AdminAddr config.Addr `env:"CCNQ_ADMIN_ADDR" envDefault:"127.0.0.1:9180"`
			}
			if err := config.Load(os.Environ(), &env); err != nil {
				return err
			}
			return admin.Probe(cmd.Context(), env.AdminAddr)
		},
	}
}

func credentialsCommand() *cobra.Command {
	var edges []string
	cmd := &cobra.Command{
		Use:   "credentials DIR",
		Short: "Make random credentials for NATS and Postgres, where there are none yet",
		Long: `Make a folder in DIR for each program with the files that it needs, and one for
the NATS server and the Postgres server each. What is there already is kept, so
the command may be run again at any time.`,
		Example: `  ccnq credentials /etc/ccnq/credentials
  ccnq credentials --edge edge-1 --edge edge-2 /etc/ccnq/credentials`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return credentials.Ensure(args[0], edges)
		},
	}
	cmd.Flags().StringArrayVar(&edges, "edge", []string{credentials.SharedEdge},
		"NATS user of an edge, may be repeated; without it all edges share one")
	return cmd
}

func migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the schema in Postgres up to date, and end",
		Long: `Bring the schema in the Postgres of CCNQ_PG_* up to date, and end. The services
do that by themselves if their role may; with this command theirs need not, and
the role that owns the schema is used for this alone. The programs of the
release before work on the new schema.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var env migrateEnv
			if err := config.Load(os.Environ(), &env); err != nil {
				return err
			}
			db, err := env.Postgres.Open(cmd.Context(), "ccnq-migrate", "group_state")
			if err != nil {
				return configError{err}
			}
			defer db.Close()
			if err := db.Prepare(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the schema %s is up to date\n", env.Postgres.Schema)
			return nil
		},
	}
}

// migrateEnv is the environment of ccnq migrate.
type migrateEnv struct {
	Postgres postgres.Config
}

// Validate is that of the part.
func (e *migrateEnv) Validate() []string { return e.Postgres.Validate() }

// demoStop bounds the wait for requests at the end of the demo origin.
const demoStop = 2 * time.Second

func demoCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Serve the small demo origin, with a quick page and slow reports, until interrupted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			origin, err := demo.Start(listen)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "the demo origin is at", origin.URL())
			<-ctx.Done()
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), demoStop)
			defer cancel()
			origin.Stop(ending)
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address to serve on")
	return cmd
}
