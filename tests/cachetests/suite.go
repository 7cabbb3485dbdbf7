package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// suite is an installed suite.
type suite struct {
	dir     string // absolute
	kinds   string // the script that lists the tests, absolute
	version string
}

// install returns the suite of package.json, another version of it, or the one
// in a folder.
func install(ctx context.Context, folder, which string) (*suite, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is not installed: the cache tests need Node.js 18 or later, with npm (Debian: apt install nodejs npm)", tool)
		}
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	s := &suite{dir: filepath.Join(folder, "node_modules", "http-cache-tests"), kinds: filepath.Join(folder, "tests.mjs")}
	switch {
	case which == "":
		err = npm(ctx, folder, "ci")
	case version.MatchString(which):
		err = npm(ctx, folder, "install", "--no-save", "http-cache-tests@"+which)
	default:
		s.dir, err = filepath.Abs(which)
	}
	if err != nil {
		return nil, err
	}
	s.version, err = packageVersion(s.dir)
	return s, err
}

var version = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*$`)

func npm(ctx context.Context, folder string, args ...string) error {
	cmd := exec.CommandContext(ctx, "npm", args...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func packageVersion(dir string) (string, error) {
	file := filepath.Join(dir, "package.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("no suite: %w", err)
	}
	var p struct{ Name, Version string }
	if err := json.Unmarshal(text, &p); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	if p.Name != "http-cache-tests" {
		return "", fmt.Errorf("%s is of %q, not of http-cache-tests", file, p.Name)
	}
	return p.Version, nil
}

// test is one test of the suite.
type test struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind string `json:"kind"` // required, optimal or check
}

// tests lists what the suite runs against a proxy.
func (s *suite) tests(ctx context.Context) ([]test, error) {
	out, err := s.node(ctx, nil, s.kinds, s.dir)
	if err != nil {
		return nil, err
	}
	var tests []test
	if err := json.Unmarshal(out, &tests); err != nil {
		return nil, fmt.Errorf("the list of tests: %w", err)
	}
	if len(tests) == 0 {
		return nil, errors.New("the suite has no tests")
	}
	return tests, nil
}

// runAgainst runs the suite and returns for each test why it failed, or
// nothing if it passed.
func (s *suite) runAgainst(ctx context.Context, binary string) (results map[string]string, err error) {
	var started processes
	defer func() { err = errors.Join(err, started.stop()) }()
	tmp, err := os.MkdirTemp("", "ccnq-cachetests-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	defer func() { err = errors.Join(err, started.stop()) }() // before the folder goes
	origin, err := startOrigin(ctx, &started, s.dir, tmp)
	if err != nil {
		return nil, err
	}
	base, err := startEdge(ctx, &started, binary, origin, tmp)
	if err != nil {
		return nil, err
	}
	// What npm run would set: the test client reads its options from there.
	out, err := s.node(ctx, []string{"npm_config_base=" + base, "npm_config_id=", "npm_package_config_id="}, "--no-warnings", "cli.mjs")
	if err != nil {
		return nil, err
	}
	return parseResults(out)
}

func (s *suite) node(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("node %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

// parseResults reads what the client prints: lines about its work, then an
// object with true for each test that passed, and a pair of an error's name
// and text for each other.
func parseResults(out []byte) (map[string]string, error) {
	start := bytes.Index(out, []byte("{\n"))
	if start < 0 {
		return nil, fmt.Errorf("the client printed no results: %.200q", out)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(out[start:], &raw); err != nil {
		return nil, fmt.Errorf("the results: %w", err)
	}
	results := make(map[string]string, len(raw))
	for id, r := range raw {
		var why []string
		switch {
		case string(r) == "true":
			results[id] = ""
		case json.Unmarshal(r, &why) == nil && len(why) > 0:
			results[id] = strings.Join(why, ": ")
		default:
			return nil, fmt.Errorf("the result of %s is %s", id, r)
		}
	}
	return results, nil
}
