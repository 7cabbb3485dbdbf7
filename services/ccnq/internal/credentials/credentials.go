// Package credentials makes the secrets of an installation: passwords for NATS
// and Postgres, in one folder for each program, so that each can be given its
// own and no more.
//
// # State
//
// The files are the state. A secret that is there is kept, and what follows
// from it (hashes, copies) is made to fit, so a run that was cut short is
// completed by the next one. Two runs at once may leave hashes that do not fit;
// a further run mends that.
package credentials

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/ccnq/ccnq/pkg/wire"
)

// SharedEdge is the NATS user that all edges share, unless each has its own.
const SharedEdge = "edge"

// Names of files.
const (
	natsUserFile      = "nats-user"
	natsPasswordFile  = "nats-password"
	postgresFile      = "postgres-password"
	passwordsConfFile = "passwords.conf"
)

// hashCost is the least. A password of 130 random bits cannot be guessed
// however cheap a guess is, and the server pays at every connect.
const hashCost = bcrypt.MinCost

const (
	// private is for files that one program reads under the user that made
	// them. The Postgres server's user is another one, so its are public in
	// their folder.
	private, public = 0o600, 0o644
	privateDir      = 0o700
	publicDir       = 0o755
)

// services are the NATS users besides the edges.
var services = []string{"coordinator", "denylist", "alerts", "operator"}

// Ensure makes what is missing in dir:
//
//	<user>/nats-user, nats-password   for each edge, coordinator, denylist, alerts, operator
//	nats/passwords.conf               bcrypt hashes, as nats.conf includes them
//	postgres/superuser, owner, service
//	migrate/postgres-password         of the owner
//	coordinator/, denylist/postgres-password   of the service role
//
// Edges are names that can be edge ids and are none of the services'. Those that
// have a folder in dir from an earlier run stay: to take one out, remove its
// folder. An error names the file or the edge.
func Ensure(dir string, edges []string) error {
	for _, edge := range edges {
		if err := wire.CheckEdgeID(edge); err != nil {
			return err
		}
		if slices.Contains(append([]string{"nats", "postgres", "migrate"}, services...), edge) {
			return fmt.Errorf("edge id %q is the name of another program", edge)
		}
	}
	known, err := knownUsers(dir)
	if err != nil {
		return err
	}
	users := slices.Concat(edges, services, known)
	slices.Sort(users)
	users = slices.Compact(users)
	byVariable := map[string]string{}
	for _, user := range users {
		if other, taken := byVariable[variable(user)]; taken {
			return fmt.Errorf("edge ids %q and %q would share a password: they differ in - and _ or in case alone", other, user)
		}
		byVariable[variable(user)] = user
	}
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return err
	}
	if err := ensureNATS(dir, users); err != nil {
		return err
	}
	return ensurePostgres(dir)
}

// knownUsers are the users of NATS that an earlier run made. A missing dir has
// none.
func knownUsers(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", natsUserFile))
	if err != nil {
		return nil, fmt.Errorf("the folder %q: %w", dir, err)
	}
	var users []string
	for _, file := range files {
		user := filepath.Base(filepath.Dir(file))
		if err := wire.CheckEdgeID(user); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		users = append(users, user)
	}
	return users, nil
}

func ensureNATS(dir string, users []string) error {
	if err := os.MkdirAll(filepath.Join(dir, "nats"), privateDir); err != nil {
		return err
	}
	conf := filepath.Join(dir, "nats", passwordsConfFile)
	before, err := readHashes(conf)
	if err != nil {
		return err
	}
	var after strings.Builder
	after.WriteString("# Written by ccnq credentials.\n")
	for _, user := range users {
		own := filepath.Join(dir, user)
		if err := os.MkdirAll(own, privateDir); err != nil {
			return err
		}
		if err := ensureText(filepath.Join(own, natsUserFile), user, private); err != nil {
			return err
		}
		password, err := ensureSecret(filepath.Join(own, natsPasswordFile), private)
		if err != nil {
			return err
		}
		name := variable(user)
		hash := before[name]
		if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) != nil {
			made, err := bcrypt.GenerateFromPassword([]byte(password), hashCost)
			if err != nil {
				return fmt.Errorf("hash the password of %s: %w", user, err)
			}
			hash = string(made)
		}
		fmt.Fprintf(&after, "%s: %q\n", name, hash)
	}
	return ensureText(conf, after.String(), private)
}

// variable is the name of a user's password in the configuration of NATS.
func variable(user string) string {
	return strings.ToUpper(strings.ReplaceAll(user, "-", "_")) + "_PASSWORD"
}

// readHashes reads what Ensure wrote before; a missing file has none.
func readHashes(file string) (map[string]string, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	hashes := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if name, hash, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			hashes[name] = strings.Trim(hash, `"`)
		}
	}
	return hashes, nil
}

func ensurePostgres(dir string) error {
	server := filepath.Join(dir, "postgres")
	if err := os.MkdirAll(server, publicDir); err != nil {
		return err
	}
	for role, readers := range map[string][]string{
		"superuser": nil,
		"owner":     {"migrate"},
		"service":   {"coordinator", "denylist"},
	} {
		password, err := ensureSecret(filepath.Join(server, role), public)
		if err != nil {
			return err
		}
		for _, reader := range readers {
			own := filepath.Join(dir, reader)
			if err := os.MkdirAll(own, privateDir); err != nil {
				return err
			}
			if err := ensureText(filepath.Join(own, postgresFile), password, private); err != nil {
				return err
			}
		}
	}
	return nil
}

// ensureSecret returns the secret in a file, which it makes if it is missing:
// 130 random bits as letters and digits.
func ensureSecret(file string, mode os.FileMode) (string, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		secret := rand.Text()
		return secret, replace(file, secret, mode)
	}
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(content), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("%s is empty: remove it", file)
	}
	return secret, nil
}

// ensureText makes a file hold text.
func ensureText(file, text string, mode os.FileMode) error {
	content, err := os.ReadFile(file)
	if err == nil && string(content) == text {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return replace(file, text, mode)
}

// replace writes a file whole or not at all.
func replace(file, text string, mode os.FileMode) error {
	next := file + ".next"
	if err := os.WriteFile(next, []byte(text), mode); err != nil {
		return err
	}
	return os.Rename(next, file)
}
