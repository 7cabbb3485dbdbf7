package credentials

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// tree reads all files below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(content)
		return err
	}))
	return files
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	require.NoError(t, Ensure(dir, []string{SharedEdge}))
	first := tree(t, dir)
	require.Len(t, first, 17)
	hashes, err := readHashes(filepath.Join(dir, "nats", "passwords.conf"))
	require.NoError(t, err)
	require.Len(t, hashes, 5)
	passwords := map[string]bool{}
	for name, user := range map[string]string{
		"EDGE_PASSWORD": "edge", "COORDINATOR_PASSWORD": "coordinator", "DENYLIST_PASSWORD": "denylist",
		"ALERTS_PASSWORD": "alerts", "OPERATOR_PASSWORD": "operator",
	} {
		password := first[user+"/nats-password"]
		require.GreaterOrEqual(t, len(password), 26)
		passwords[password] = true
		require.Equal(t, user, first[user+"/nats-user"])
		require.NoError(t, bcrypt.CompareHashAndPassword([]byte(hashes[name]), []byte(password)), name)
		require.NotContains(t, first["nats/passwords.conf"], password)
	}
	for _, role := range []string{"superuser", "owner", "service"} {
		passwords[first["postgres/"+role]] = true
	}
	require.Len(t, passwords, 8, "no two are the same")
	require.Equal(t, first["postgres/owner"], first["migrate/postgres-password"])
	require.Equal(t, first["postgres/service"], first["coordinator/postgres-password"])
	require.Equal(t, first["postgres/service"], first["denylist/postgres-password"])

	require.NoError(t, Ensure(dir, []string{SharedEdge}))
	require.Equal(t, first, tree(t, dir), "a second run changes nothing")

	// What was lost, or changed by hand, is made to fit.
	require.NoError(t, os.Remove(filepath.Join(dir, "alerts", "nats-password")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "postgres", "service"), []byte("chosen\n"), 0o600))
	require.NoError(t, Ensure(dir, []string{SharedEdge}))
	second := tree(t, dir)
	require.NotEqual(t, first["alerts/nats-password"], second["alerts/nats-password"])
	hashes, err = readHashes(filepath.Join(dir, "nats", "passwords.conf"))
	require.NoError(t, err)
	require.NoError(t, bcrypt.CompareHashAndPassword([]byte(hashes["ALERTS_PASSWORD"]), []byte(second["alerts/nats-password"])))
	require.Equal(t, "chosen", second["denylist/postgres-password"])
	require.Equal(t, first["edge/nats-password"], second["edge/nats-password"])
}

func TestEnsureIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	require.NoError(t, Ensure(dir, []string{"edge-1", "edge-2"}))
	for name, want := range map[string]fs.FileMode{
		".": 0o700, "edge-1": 0o700, "edge-1/nats-password": 0o600, "edge-2/nats-user": 0o600,
		"nats/passwords.conf": 0o600, "denylist/postgres-password": 0o600,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm(), name)
	}
}

func TestEnsureKeepsEdgesOfEarlierRuns(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	conf := filepath.Join(dir, "nats", "passwords.conf")
	require.NoError(t, Ensure(dir, []string{"edge-1", "edge-2"}))
	first, err := readHashes(conf)
	require.NoError(t, err)
	require.NoError(t, Ensure(dir, []string{"edge-3"}))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "edge-2")))
	require.NoError(t, Ensure(dir, nil))
	hashes, err := readHashes(conf)
	require.NoError(t, err)
	require.Equal(t, first["EDGE_1_PASSWORD"], hashes["EDGE_1_PASSWORD"])
	require.Contains(t, hashes, "EDGE_3_PASSWORD")
	require.NotContains(t, hashes, "EDGE_2_PASSWORD")
	require.ErrorContains(t, Ensure(dir, []string{"edge_1"}), "would share a password")
}

func TestEnsureRefuses(t *testing.T) {
	t.Parallel()
	for edge, want := range map[string]string{
		"":            "edge id is empty",
		"../x":        "has a character other than",
		"coordinator": "is the name of another program",
		"postgres":    "is the name of another program",
	} {
		dir := filepath.Join(t.TempDir(), "new")
		require.ErrorContains(t, Ensure(dir, []string{edge}), want)
		require.NoDirExists(t, dir)
	}
	require.ErrorContains(t, Ensure(filepath.Join(t.TempDir(), "new"), []string{"edge-1", "edge_1"}), "would share a password")
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "edge"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "edge", "nats-password"), []byte("\n"), 0o600))
	require.ErrorContains(t, Ensure(dir, []string{SharedEdge}), "nats-password is empty")
}

// The configurations in deploy/nats take what Ensure writes, and let each user
// in with its password.
func TestNATSReadsThem(t *testing.T) {
	t.Parallel()
	for file, edges := range map[string][]string{
		"nats.conf":          {SharedEdge},
		"nats-per-edge.conf": {"edge-1", "edge-2"},
	} {
		etc, dir := t.TempDir(), t.TempDir()
		require.NoError(t, os.CopyFS(etc, os.DirFS("../../../../deploy/nats")))
		require.NoError(t, Ensure(dir, edges))
		require.NoError(t, os.Symlink(filepath.Join(dir, "nats"), filepath.Join(etc, "credentials")))
		opts, err := server.ProcessConfigFile(filepath.Join(etc, file))
		require.NoError(t, err)
		require.Len(t, opts.Users, len(edges)+len(services))
		for _, user := range opts.Users {
			password, err := os.ReadFile(filepath.Join(dir, user.Username, "nats-password"))
			require.NoError(t, err)
			require.NoError(t, bcrypt.CompareHashAndPassword([]byte(user.Password), password), user.Username)
			require.NotNil(t, user.Permissions, user.Username)
		}
	}
}
