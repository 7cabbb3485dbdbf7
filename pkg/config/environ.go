package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	prefix     = "CCNQ_"
	testPrefix = "CCNQ_TEST_"
	fileSuffix = "_FILE"
	// maxFile bounds the file that a variable's _FILE form names.
	maxFile = 64 << 10
)

// split turns the form of [os.Environ] into a map of the variables of ccnq that
// are set: not empty, and not injected by a platform. Of two with one name the
// last holds, as in os.
func split(environ []string) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, prefix) || strings.HasPrefix(name, testPrefix) {
			continue
		}
		if value == "" || injected(name, value) {
			delete(env, name)
			continue
		}
		env[name] = value
	}
	return env
}

// Service links of Kubernetes, which has them from the links of Docker.
var (
	serviceName = regexp.MustCompile(`^CCNQ_(.+_)?SERVICE_(HOST|PORT(_.+)?)$`)
	portName    = regexp.MustCompile(`^CCNQ_(.+_)?PORT(_[0-9]+_(TCP|UDP|SCTP))?$`)
	portPart    = regexp.MustCompile(`^CCNQ_(.+_)?PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)$`)
	portValue   = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

func injected(name, value string) bool {
	return serviceName.MatchString(name) || portPart.MatchString(name) ||
		portName.MatchString(name) && portValue.MatchString(value)
}

// lookup returns the value of a variable, from its file if it has one. It
// reports ok = false when the variable is not set, or set in a wrong way.
func (f field) lookup(env map[string]string, known map[string]bool, problems *problems) (value string, ok bool) {
	name := f.name
	value, ok = env[name]
	if strings.HasSuffix(name, fileSuffix) || known[name+fileSuffix] {
		return value, ok
	}
	path, inFile := env[name+fileSuffix]
	switch {
	case !inFile:
		return value, ok
	case ok:
		problems.add(name, "is given twice, also as %s", name+fileSuffix)
		return "", false
	}
	value, err := readFile(path)
	if err != nil {
		where := shown(path)
		if f.Secret { // somebody may have put the secret where its path belongs
			where = "(not shown)"
		}
		problems.add(name, "%s=%s: %s", name+fileSuffix, where, err)
		return "", false
	}
	return value, true
}

// readFile returns the content of a small file without one newline at its end.
func readFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", cause(err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return "", cause(err)
	case len(content) > maxFile:
		return "", fmt.Errorf("the file has more than %d bytes", maxFile)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if value == "" {
		return "", errors.New("the file is empty")
	}
	return value, nil
}

// cause drops the path from an error, since the message has it already.
func cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// unknown reports the names that no service knows.
func unknown(env map[string]string, known map[string]bool, problems *problems) {
	for name := range env {
		base := strings.TrimSuffix(name, fileSuffix)
		if known[name] || known[base] && !strings.HasSuffix(base, fileSuffix) {
			continue
		}
		if near := nearest(name, known); near != "" {
			problems.add(printable(name), "is not a known variable; did you mean %s?", near)
		} else {
			problems.add(printable(name), "is not a known variable")
		}
	}
}

// printable quotes a name that no shell would have let through.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) || len(name) > maxShown {
		return shown(name)
	}
	return name
}

// nearest returns the known name that is most like name, or "" if none is
// alike: a third of its letters may differ.
func nearest(name string, known map[string]bool) string {
	best, least := "", (len(name)-len(prefix))/3+1
	for candidate := range known {
		// Names of very different length are not worth the work.
		if d := len(candidate) - len(name); d >= least || -d >= least {
			continue
		}
		d := distance(name, candidate)
		if d < least || d == least && best != "" && candidate < best {
			best, least = candidate, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes. Names from the environment are
// bounded by its size, those of the program by nearest.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitution := diagonal
			if a[i] != b[j] {
				substitution++
			}
			diagonal = row[j+1]
			row[j+1] = slices.Min([]int{substitution, row[j] + 1, row[j+1] + 1})
		}
	}
	return row[len(b)]
}
