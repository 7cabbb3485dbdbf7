package config

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Addr is the address of a listener: host:port, where the host may be empty
// (all interfaces), or off.
type Addr string

// Off reports whether the listener is switched off or was never named.
func (a Addr) Off() bool { return a == "off" || a == "" }

// UnmarshalText reads host:port or off. The port is a number from 0 (any free
// one) to 65535.
func (a *Addr) UnmarshalText(text []byte) error {
	s := string(text)
	if s != "off" {
		_, port, err := net.SplitHostPort(s)
		if err != nil {
			return errText("is not host:port or off")
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return errText("has no port from 0 to 65535")
		}
	}
	*a = Addr(s)
	return nil
}

// Level is a log level by the seed's names: trace, debug, info, warn, error,
// fatal. The zero value is info.
type Level slog.Level

// The levels that slog has no name for.
const (
	// LevelTrace is below debug.
	LevelTrace = Level(slog.LevelDebug - 4)
	// LevelFatal is above error. As a threshold it leaves only what ends the
	// process.
	LevelFatal = Level(slog.LevelError + 4)
)

// Level makes a Level a [slog.Leveler].
func (l Level) Level() slog.Level { return slog.Level(l) }

// String returns the seed's name in capitals, or slog's notation (INFO+1) for a
// level between two names.
func (l Level) String() string {
	switch l {
	case LevelTrace:
		return "TRACE"
	case LevelFatal:
		return "FATAL"
	}
	return l.Level().String()
}

// UnmarshalText reads one of the six names, in lower case.
func (l *Level) UnmarshalText(text []byte) error {
	switch string(text) {
	case "trace":
		*l = LevelTrace
	case "debug":
		*l = Level(slog.LevelDebug)
	case "info":
		*l = Level(slog.LevelInfo)
	case "warn":
		*l = Level(slog.LevelWarn)
	case "error":
		*l = Level(slog.LevelError)
	case "fatal":
		*l = LevelFatal
	default:
		return errText("is not one of trace, debug, info, warn, error, fatal")
	}
	return nil
}

// List is a comma-separated list. Spaces around an entry are dropped, and so
// are empty entries.
type List []string

// UnmarshalText reads the list.
func (l *List) UnmarshalText(text []byte) error {
	*l = nil
	for entry := range strings.SplitSeq(string(text), ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			*l = append(*l, entry)
		}
	}
	return nil
}

// Methods is a list of HTTP methods in capitals. What it means to be empty is
// for the owner to say.
type Methods []string

// UnmarshalText reads a comma-separated list of tokens (RFC 9110 section
// 5.6.2) and turns them into capitals, since every registered method is.
func (m *Methods) UnmarshalText(text []byte) error {
	var list List
	if err := list.UnmarshalText(text); err != nil {
		return err
	}
	*m = nil
	for _, method := range list {
		if strings.ContainsFunc(method, notInToken) {
			return errText(fmt.Sprintf("has %s in it, which is not an HTTP method", shown(method)))
		}
		*m = append(*m, strings.ToUpper(method))
	}
	return nil
}

func notInToken(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		strings.ContainsRune("!#$%&'*+-.^_`|~", r))
}

// Number is a finite number of at least 0, which may have a fraction. What 0 means
// is for the owner to say.
type Number float64

// Float returns the number.
func (n Number) Float() float64 { return float64(n) }

// UnmarshalText reads decimal digits with an optional point, such as 40 or 0.5.
func (n *Number) UnmarshalText(text []byte) error {
	const decimal = "0123456789."
	if len(text) > maxDigits || strings.Trim(string(text), decimal) != "" {
		return errText("is not a number of at least 0")
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return errText("is not a number of at least 0")
	}
	*n = Number(f)
	return nil
}

// maxDigits bounds the length of a [Number], far above what has a meaning.
const maxDigits = 32

// Millis is a span of time given in whole milliseconds, from 0 to ten years.
// What 0 means is for the owner to say.
type Millis time.Duration

// maxMillis is ten years.
const maxMillis = 10 * 365 * 24 * int64(time.Hour/time.Millisecond)

// Duration returns the span.
func (m Millis) Duration() time.Duration { return time.Duration(m) }

// UnmarshalText reads the decimal digits.
func (m *Millis) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 63)
	if err != nil {
		return errText("is not whole milliseconds")
	}
	if int64(n) > maxMillis {
		return errText("is more milliseconds than ten years have")
	}
	*m = Millis(time.Duration(n) * time.Millisecond)
	return nil
}

// URL is the absolute address of a server: http or https, with a host, without
// user, query and fragment. Its URL is nil when the variable is not set.
type URL struct{ *url.URL }

// UnmarshalText reads the URL.
func (u *URL) UnmarshalText(text []byte) error {
	parsed, err := url.Parse(string(text))
	switch {
	case err != nil:
		return errText("is not a URL")
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return errText("does not begin with http:// or https://")
	case parsed.Hostname() == "" || parsed.Opaque != "":
		return errText("has no host")
	case parsed.User != nil:
		return errText("has a user in it")
	case parsed.RawQuery != "" || parsed.ForceQuery:
		return errText("has a query")
	case parsed.Fragment != "":
		return errText("has a fragment")
	}
	if port := parsed.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errText("has no port from 1 to 65535")
		}
	}
	u.URL = parsed
	return nil
}
