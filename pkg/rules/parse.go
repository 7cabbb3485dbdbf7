package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"
)

// Limits of a rules file. What is over a limit is refused.
const (
	// MaxFileSize is the size of a rules file in bytes.
	MaxFileSize = 1 << 20
	// MaxGroups is the number of groups of a ruleset.
	MaxGroups = 1000
	// MaxConditions is the number of conditions of a group.
	MaxConditions = 100
	// MaxName is the length in bytes of the name of a header, cookie or query
	// parameter.
	MaxName = 256
	// MaxValue is the length in bytes of the value of a condition.
	MaxValue = 64 << 10

	// maxProblems is how many problems of a file are listed.
	maxProblems = 100
)

// Load reads and parses a rules file. See [Parse]; a file that cannot be read
// is an error of package os, which names the file.
func Load(path string) (*Set, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// readFile reads a regular file up to one byte over the limit, so that Parse
// can refuse it.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe would block for ever
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, MaxFileSize+1))
}

// Parse parses a ruleset in the JSON form of the seed (see the package
// comment). The name, usually that of the file, begins every message.
//
// The form is strict: unknown fields, fields given twice, wrong types and
// anything after the array are errors. All problems are reported together
// (errors.Join), at most 100 of them; each names group, condition and field,
// counted from 1.
func Parse(name string, data []byte) (*Set, error) {
	p := parser{file: name}
	p.set(data)
	if len(p.problems) > 0 {
		return nil, errors.Join(p.problems...)
	}
	return &Set{groups: p.groups, backtracking: p.backtracking}, nil
}

// parser collects the groups of one file, and its problems.
type parser struct {
	file         string
	groups       []group
	backtracking []string
	problems     []error
}

// fail notes a problem at a place within the file.
func (p *parser) fail(place, format string, args ...any) {
	switch n := len(p.problems); {
	case n < maxProblems:
		p.problems = append(p.problems, fmt.Errorf("%s: %s%s", p.file, place, fmt.Sprintf(format, args...)))
	case n == maxProblems:
		p.problems = append(p.problems, fmt.Errorf("%s: there are more problems than these %d", p.file, maxProblems))
	}
}

func (p *parser) set(data []byte) {
	if len(data) > MaxFileSize {
		p.fail("", "larger than %d bytes", MaxFileSize)
		return
	}
	if !utf8.Valid(data) {
		p.fail("", "not valid UTF-8")
		return
	}
	groups, err := array(data)
	if err != nil {
		p.fail("", "%s", describe(err, data))
		return
	}
	if len(groups) > MaxGroups {
		p.fail("", "%d groups, more than %d", len(groups), MaxGroups)
		return
	}
	for i, raw := range groups {
		p.group(i+1, raw)
	}
	// What needs backtracking comes last, so that it runs only if it must.
	slices.SortStableFunc(p.groups, func(a, b group) int { return a.cost() - b.cost() })
}

// cost is 1 for a group with a backtracking pattern.
func (g group) cost() int {
	if slices.ContainsFunc(g, func(c condition) bool { return c.slow != nil }) {
		return 1
	}
	return 0
}

func (p *parser) group(number int, raw json.RawMessage) {
	conditions, err := array(raw)
	if err != nil {
		p.fail(fmt.Sprintf("group %d: ", number), "%s", err)
		return
	}
	if len(conditions) > MaxConditions {
		p.fail(fmt.Sprintf("group %d: ", number), "%d conditions, more than %d", len(conditions), MaxConditions)
		return
	}
	var g group
	for i, raw := range conditions {
		f := fields{parser: p, place: fmt.Sprintf("group %d, condition %d", number, i+1)}
		if c, ok := f.condition(raw); ok {
			g = append(g, c)
		}
	}
	if len(g) == 0 {
		return // an empty group matches nothing
	}
	slices.SortStableFunc(g, func(a, b condition) int { return a.cost() - b.cost() })
	p.groups = append(p.groups, g)
}

// array splits a JSON array into its elements.
func array(raw []byte) ([]json.RawMessage, error) {
	// The syntax is checked before the type: the text may not be JSON at all.
	var whole json.RawMessage
	if err := json.Unmarshal(raw, &whole); err != nil {
		return nil, err
	}
	if kind := kindOf(whole); kind != "an array" {
		return nil, fmt.Errorf("is %s, must be an array", kind)
	}
	var elements []json.RawMessage
	err := json.Unmarshal(whole, &elements)
	return elements, err
}

// kindOf names the type of a valid JSON value.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '[':
		return "an array"
	case '{':
		return "an object"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// describe adds line and column to a syntax error.
func describe(err error, data []byte) string {
	e, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err.Error()
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return "is empty; a ruleset that matches nothing is []"
	}
	before := data[:min(int(e.Offset), len(data))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n') - 1
	return fmt.Sprintf("line %d, column %d: %s", line, column, e)
}

// clip quotes a text for a message and shortens it.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", s[:most])
}
