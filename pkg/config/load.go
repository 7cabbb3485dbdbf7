package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Error lists everything that is wrong with the environment.
type Error struct {
	// Problems has one line for each problem, which begins with the name of
	// the variable, sorted.
	Problems []string
}

// Error returns all problems, one in a line.
func (e *Error) Error() string {
	return "configuration: " + strings.Join(e.Problems, "\n  ")
}

// validator is implemented by structs whose fields depend on each other.
type validator interface {
	// Validate returns one line for each problem. A line begins with the name
	// of a variable and a colon; secrets must not stand in it.
	Validate() []string
}

// Load sets the fields of the structs that dst points to from the variables of
// environ, which has the form of [os.Environ]. If a struct has a method
// Validate() []string, its lines are reported too, except those about a
// variable that is already known to be wrong (such a field has its default).
//
// The error is an [*Error] unless a struct itself is faulty: a tag or type
// that this package does not know.
func Load(environ []string, dst ...any) error {
	fields, err := walk(dst)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	for _, f := range fields {
		known[f.name] = true
	}
	env := split(environ)
	problems := &problems{named: map[string]bool{}}
	unknown(env, known, problems)

	for _, f := range fields {
		value, ok := f.lookup(env, known, problems)
		if ok {
			ok = f.parse(value, problems)
		}
		if !ok {
			if err := f.setDefault(problems); err != nil {
				return err
			}
		}
	}
	for _, d := range dst {
		if v, ok := d.(validator); ok {
			for _, line := range v.Validate() {
				problems.addLine(line)
			}
		}
	}
	return problems.err()
}

// problems collects lines and remembers which variables they are about.
type problems struct {
	lines []string
	named map[string]bool
}

// add reports a problem with a variable.
func (p *problems) add(name, format string, args ...any) {
	p.named[name] = true
	p.lines = append(p.lines, name+": "+fmt.Sprintf(format, args...))
}

// addLine adds a line of a validator unless its variable is wrong anyway.
func (p *problems) addLine(line string) {
	name, _, _ := strings.Cut(line, ":")
	if !p.named[name] {
		p.lines = append(p.lines, line)
	}
}

func (p *problems) err() error {
	if len(p.lines) == 0 {
		return nil
	}
	slices.Sort(p.lines)
	return &Error{Problems: slices.Compact(p.lines)}
}

// walk lists the fields of the structs, in their order.
func walk(dst []any) ([]field, error) {
	var out []field
	for _, d := range dst {
		v := reflect.ValueOf(d)
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return nil, fmt.Errorf("config: %T is not a pointer to a struct", d)
		}
		fields, err := walkStruct(v.Elem(), "")
		if err != nil {
			return nil, err
		}
		out = append(out, fields...)
	}
	return out, nil
}

func walkStruct(v reflect.Value, section string) ([]field, error) {
	var out []field
	for sf, value := range v.Fields() {
		if !sf.IsExported() {
			continue
		}
		if _, ok := sf.Tag.Lookup("env"); ok {
			f, err := newField(sf, value, section)
			if err != nil {
				return nil, err
			}
			out = append(out, f)
			continue
		}
		if sf.Type.Kind() == reflect.Struct {
			inner := section
			if s, ok := sf.Tag.Lookup("section"); ok {
				inner = s
			}
			fields, err := walkStruct(value, inner)
			if err != nil {
				return nil, err
			}
			out = append(out, fields...)
		}
	}
	return out, nil
}
