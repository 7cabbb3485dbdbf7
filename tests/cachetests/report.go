package main

import (
	"errors"
	"fmt"
	"io"
)

// The kinds of tests, in the order in which they are reported: what a cache
// must do, what a good one does, and what is only asked.
const (
	required = "required"
	optimal  = "optimal"
	check    = "check"
)

// count is how many tests of a kind there are and pass.
type count struct {
	passed, total int
}

// failure is a test that does not pass.
type failure struct {
	test
	why string
}

// summary is the outcome of a run.
type summary struct {
	counts   map[string]count
	failures []failure
}

// summarize looks up the result of each test. A test without a result has
// failed.
func summarize(tests []test, results map[string]string) summary {
	sum := summary{counts: map[string]count{}}
	for _, t := range tests {
		why, ran := results[t.ID]
		if !ran {
			why = "did not run"
		}
		c := sum.counts[t.Kind]
		c.total++
		if why == "" {
			c.passed++
		} else {
			sum.failures = append(sum.failures, failure{t, why})
		}
		sum.counts[t.Kind] = c
	}
	return sum
}

// print writes the failures of each kind and then the counts.
func (s summary) print(w io.Writer, version string) error {
	p := printer{w: w}
	for _, kind := range []string{check, optimal, required} {
		heading := fmt.Sprintf("%s tests that fail:\n", kind)
		if kind == check {
			heading = "check tests that are answered with no (neither is wrong):\n"
		}
		for _, f := range s.failures {
			if f.Kind == kind {
				p.printf("%s  %s: %s\n", heading, f.ID, f.why)
				heading = ""
			}
		}
		if heading == "" {
			p.printf("\n")
		}
	}
	p.printf("http-cache-tests %s\n", version)
	for _, kind := range []string{required, optimal, check} {
		c := s.counts[kind]
		p.printf("  %-8s %3d/%d\n", kind, c.passed, c.total)
	}
	return p.err
}

// printer remembers the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// bounds is how many tests have to pass.
type bounds struct {
	required, optimal int
}

// check returns an error if too few tests pass.
func (s summary) check(b bounds) error {
	return errors.Join(enough(required, s.counts[required], b.required), enough(optimal, s.counts[optimal], b.optimal))
}

func enough(kind string, c count, bound int) error {
	if c.passed >= bound {
		return nil
	}
	return fmt.Errorf("%d of the %d %s tests pass, at least %d should", c.passed, c.total, kind, bound)
}
