package bus

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// Config is the part of a service's environment that says where NATS is. The
// credentials are files, each read again at every connect, so that a changed
// one needs no restart.
type Config struct {
	URL          string `env:"CCNQ_NATS_URL" envDefault:"nats://127.0.0.1:4222" doc:"NATS servers, separated by commas"`
	CredsFile    string `env:"CCNQ_NATS_CREDS_FILE" doc:"file with a NATS user's JWT and key"`
	UserFile     string `env:"CCNQ_NATS_USER_FILE" doc:"file with a NATS user name; needs CCNQ_NATS_PASSWORD_FILE"`
	PasswordFile string `env:"CCNQ_NATS_PASSWORD_FILE" doc:"file with the password of CCNQ_NATS_USER_FILE"`
	TokenFile    string `env:"CCNQ_NATS_TOKEN_FILE" doc:"file with a NATS token"`
	CAFile       string `env:"CCNQ_NATS_CA_FILE" doc:"certificate authorities (PEM) that verify the NATS server, instead of the system's"`
}

// DefaultURL is where NATS is when nothing is said about it.
const DefaultURL = "nats://127.0.0.1:4222"

// Given reports whether the operator has said where NATS is, or how to log in
// there: for what uses NATS only if there is one.
func (c Config) Given() bool {
	return c != Config{URL: DefaultURL} && c != Config{}
}

// Validate returns one message for each problem, which names the variable.
func (c Config) Validate() []string {
	var problems []string
	for server := range strings.SplitSeq(c.URL, ",") {
		if problem := checkURL(strings.TrimSpace(server)); problem != "" {
			problems = append(problems, "CCNQ_NATS_URL: "+problem)
		}
	}
	if (c.UserFile == "") != (c.PasswordFile == "") {
		problems = append(problems, "CCNQ_NATS_USER_FILE and CCNQ_NATS_PASSWORD_FILE: one needs the other")
	}
	ways := 0
	for _, file := range []string{c.CredsFile, c.UserFile, c.TokenFile} {
		if file != "" {
			ways++
		}
	}
	if ways > 1 {
		problems = append(problems,
			"CCNQ_NATS_CREDS_FILE, CCNQ_NATS_USER_FILE and CCNQ_NATS_TOKEN_FILE: give one of them, not several")
	}
	return problems
}

// checkURL says what is wrong with the address of one server, or nothing. It
// never repeats an address that may hold a password.
func checkURL(server string) string {
	u, err := url.Parse(server)
	if err != nil || u.Opaque != "" {
		return "not a URL such as nats://127.0.0.1:4222"
	}
	if u.User != nil {
		return "must not hold credentials; give them in CCNQ_NATS_USER_FILE and CCNQ_NATS_PASSWORD_FILE, or CCNQ_NATS_TOKEN_FILE"
	}
	switch u.Scheme {
	case "nats", "tls", "ws", "wss":
	default:
		return fmt.Sprintf("%q does not begin with nats://, tls://, ws:// or wss://", server)
	}
	if u.Hostname() == "" {
		return fmt.Sprintf("%q has no host", server)
	}
	return ""
}

// Options returns the options of a connection that the servers list as name.
func (c Config) Options(name string, logger *slog.Logger) Options {
	return Options{
		URL:          c.URL,
		Name:         name,
		CredsFile:    c.CredsFile,
		UserFile:     c.UserFile,
		PasswordFile: c.PasswordFile,
		TokenFile:    c.TokenFile,
		CAFile:       c.CAFile,
		Logger:       logger,
	}
}
