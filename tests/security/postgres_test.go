package security

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/postgres"
	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/tests/internal/cluster"
)

// Passwords of the roles.
const ownerPassword, servicePassword = "the owner's", "the services'"

// database is a Postgres server with the roles of deploy/postgres.
type database struct {
	t      *testing.T
	server *testdb.Server
}

func startDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{t: t, server: testdb.StartServer(t)}
	script, err := os.ReadFile("../../deploy/postgres/roles.sql")
	require.NoError(t, err)
	d.superuser(strings.NewReplacer( // as psql does
		":'owner_password'", "'"+strings.ReplaceAll(ownerPassword, "'", "''")+"'",
		":'service_password'", "'"+strings.ReplaceAll(servicePassword, "'", "''")+"'",
		`:"DBNAME"`, `"postgres"`,
	).Replace(string(script)))
	return d
}

// superuser runs statements.
func (d *database) superuser(sql string) {
	d.t.Helper()
	d.run(d.server.URL, sql)
}

func (d *database) run(url, sql string) {
	d.t.Helper()
	require.NoError(d.t, run(d.t, url, sql))
}

func run(t *testing.T, url, sql string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// as is the database for one role.
func (d *database) as(user, password string) testdb.DB {
	d.t.Helper()
	at, err := url.Parse(d.server.URL)
	require.NoError(d.t, err)
	at.User = url.UserPassword(user, password)
	query := at.Query()
	query.Set("search_path", "queue")
	at.RawQuery = query.Encode()
	return testdb.DB{Schema: "queue", URL: at.String()}
}

// migrate is what ccnq migrate does.
func migrate(t *testing.T, settings cluster.Settings) error {
	t.Helper()
	var env struct{ Postgres postgres.Config }
	require.NoError(t, config.Load(settings.Environ(), &env))
	db, err := env.Postgres.Open(t.Context(), "a test", "group_state")
	require.NoError(t, err)
	defer db.Close()
	return db.Prepare(t.Context())
}

func TestPostgres_LeastPrivilege(t *testing.T) {
	t.Parallel()
	d := startDatabase(t)
	owner, service := d.as("ccnq_owner", ownerPassword), d.as("ccnq", servicePassword)
	require.ErrorContains(t, migrate(t, cluster.Postgres(t, service)), "permission denied", "the services cannot make the schema")
	require.NoError(t, migrate(t, cluster.Postgres(t, owner)))
	require.NoError(t, migrate(t, cluster.Postgres(t, service)), "nothing is left to do for them")

	// Everything works.
	b := startBroker(t, shared, nil)
	works(t, b, siteOn(t, b, service, nil))

	// Nothing more does.
	for _, sql := range []string{
		"CREATE TABLE queue.mine ()", "CREATE TABLE public.mine ()", "CREATE SCHEMA mine", "CREATE TEMP TABLE mine ()",
		"DROP TABLE queue.ip_block", "ALTER TABLE queue.ip_block DISABLE TRIGGER ALL",
		"CREATE OR REPLACE FUNCTION queue.address_text(inet) RETURNS text LANGUAGE sql AS 'SELECT NULL'",
		"DROP FUNCTION queue.denylist_now()", "SET ROLE ccnq_owner", "ALTER ROLE ccnq SUPERUSER",
		"COPY queue.ip_block TO PROGRAM 'true'", "SELECT * FROM pg_authid", "SELECT pg_read_file('pg_hba.conf')",
	} {
		err := run(t, service.URL, sql)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, sql)
		require.Equal(t, "42501", refused.Code, "%s: %s", sql, refused.Message) // insufficient_privilege
	}
}

// serveTLS makes the server speak TLS.
func (d *database) serveTLS(a *authority) {
	d.t.Helper()
	cert, key := a.issue(d.t)
	for name, content := range map[string][]byte{"server.crt": cert, "server.key": key} {
		lines := strings.ReplaceAll(strings.TrimSpace(string(content)), "\n", "|")
		d.superuser("COPY (SELECT unnest(string_to_array('" + lines + "', '|'))) TO PROGRAM 'umask 077; cat > " + name + "'")
	}
	d.superuser("ALTER SYSTEM SET ssl = on")
	d.superuser("SELECT pg_reload_conf()")
}

func TestTLS_ToNATSAndPostgres(t *testing.T) {
	t.Parallel()
	private, stranger := newAuthority(t), newAuthority(t)
	d := startDatabase(t)
	require.NoError(t, migrate(t, cluster.Postgres(t, d.as("ccnq_owner", ownerPassword))))
	d.serveTLS(private)
	// Nobody is let in without TLS from now on.
	d.superuser(`COPY (SELECT 'local all all trust' UNION ALL SELECT 'hostssl all all all scram-sha-256') TO PROGRAM 'cat > pg_hba.conf'`)
	d.superuser("SELECT pg_reload_conf()")

	encrypted := func(a *authority) cluster.Settings {
		return cluster.Settings{
			"CCNQ_PG_SSLMODE": "verify-full", "CCNQ_PG_CA_FILE": a.file, "CCNQ_NATS_CA_FILE": a.file,
		}
	}
	service := d.as("ccnq", servicePassword)
	service.URL = strings.Replace(service.URL, "sslmode=disable", "sslmode=require", 1)
	at := cluster.Postgres(t, service)
	require.ErrorContains(t, migrate(t, at.With(cluster.Settings{"CCNQ_PG_SSLMODE": "disable"})), "no encryption")
	require.ErrorContains(t, migrate(t, at.With(encrypted(stranger))), "certificate signed by unknown authority")
	require.NoError(t, migrate(t, at.With(encrypted(private))))

	b := startBroker(t, withTLS, func(etc string) { writeCertificate(t, etc, private) })
	b.url = strings.Replace(b.url, "nats://", "tls://", 1)
	b.ca = private.file
	require.ErrorContains(t, b.refuses(t, stranger.file), "certificate signed by unknown authority")
	require.ErrorContains(t, b.refuses(t, ""), "certificate signed by unknown authority", "the system's authorities do not know it")
	works(t, b, siteOn(t, b, service, encrypted(private)))
}
