package bus

import (
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/ccnq/ccnq/pkg/wire"
)

// authOptions reads each file once, so that a wrong name stops the start, and
// again at every connect.
func authOptions(opts Options) ([]nats.Option, error) {
	var out []nats.Option
	for _, file := range []string{opts.CredsFile, opts.UserFile, opts.PasswordFile, opts.TokenFile, opts.CAFile} {
		if _, err := readSecret(file); err != nil {
			return nil, err
		}
	}
	if opts.CredsFile != "" {
		out = append(out, nats.UserCredentials(opts.CredsFile))
	}
	if opts.UserFile != "" {
		out = append(out, nats.UserInfoHandler(func() (string, string) {
			user, _ := readSecret(opts.UserFile)
			password, _ := readSecret(opts.PasswordFile)
			return user, password
		}))
	}
	if opts.TokenFile != "" {
		out = append(out, nats.TokenHandler(func() string {
			token, _ := readSecret(opts.TokenFile)
			return token
		}))
	}
	if opts.CAFile != "" {
		out = append(out, nats.RootCAs(opts.CAFile))
	}
	return out, nil
}

// readSecret returns the content of a file without the newline at its end; the
// empty name is the empty secret.
func readSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("NATS credentials: %w", err)
	}
	return strings.TrimRight(string(content), "\r\n"), nil
}

// inboxPrefix returns the first token of reply subjects, or nothing for the
// library's. A user keeps the one it had at the start if the file changes. A
// name with characters that a subject cannot have is left to the library.
func inboxPrefix(opts Options) (string, error) {
	if opts.InboxPrefix != "" || opts.UserFile == "" {
		return opts.InboxPrefix, nil
	}
	user, err := readSecret(opts.UserFile)
	if err != nil || wire.CheckEdgeID(user) != nil {
		return "", err
	}
	return wire.InboxPrefix(user), nil
}
