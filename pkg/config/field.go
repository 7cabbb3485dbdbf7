package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caarlos0/env/v11"
)

// field is one field of a struct that is being filled.
type field struct {
	Field
	name     string
	value    reflect.Value
	spec     reflect.StructField
	required bool
	enum     []string
	min, max *int64
}

func newField(sf reflect.StructField, value reflect.Value, section string) (field, error) {
	name, options, _ := strings.Cut(sf.Tag.Get("env"), ",")
	f := field{
		Field: Field{
			Name:    name,
			Default: sf.Tag.Get("envDefault"),
			Doc:     sf.Tag.Get("doc"),
			Secret:  sf.Tag.Get("secret") == "true",
			Section: section,
		},
		name:     name,
		value:    value,
		spec:     sf,
		required: options == "required",
	}
	if options != "" && !f.required {
		return field{}, fmt.Errorf("config: field %s: env option %q is not known", sf.Name, options)
	}
	if enum, ok := sf.Tag.Lookup("enum"); ok {
		f.enum = strings.Split(enum, ",")
	}
	var err error
	if f.min, err = bound(sf, "min"); err != nil {
		return field{}, err
	}
	if f.max, err = bound(sf, "max"); err != nil {
		return field{}, err
	}
	f.Type, err = f.describe()
	return f, err
}

func bound(sf reflect.StructField, tag string) (*int64, error) {
	text, ok := sf.Tag.Lookup(tag)
	if !ok {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("config: field %s: %s is not a whole number", sf.Name, tag)
	}
	return &n, nil
}

// parse sets the field from the text of its variable, or reports why not.
func (f field) parse(text string, problems *problems) bool {
	value, err := f.convert(text)
	switch {
	case err == nil:
		f.value.Set(value)
		return true
	case f.Secret:
		problems.add(f.name, "the value (not shown) is not %s", f.Type)
	default:
		problems.add(f.name, "%s %s", shown(text), err)
	}
	return false
}

// setDefault sets the field from its tag. A required variable that is missing
// is a problem of the environment; a default that does not fit is an error of
// the program.
func (f field) setDefault(problems *problems) error {
	f.value.SetZero()
	if f.Default == "" {
		if f.required && !problems.named[f.name] {
			problems.add(f.name, "is required")
		}
		return nil
	}
	value, err := f.convert(f.Default)
	if err != nil {
		return fmt.Errorf("config: field %s: default %q %w", f.spec.Name, f.Default, err)
	}
	f.value.Set(value)
	return nil
}

// errText is what is wrong with a value, as the end of a sentence that begins
// with the value.
type errText string

func (e errText) Error() string { return string(e) }

// convert turns text into a value of the field's type and checks its bounds.
// The error ends a sentence that begins with the value.
//
// The field stands alone in a struct made for it, because the library reports
// the names of fields and not those of variables.
func (f field) convert(text string) (reflect.Value, error) {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return reflect.Value{}, errText("is not UTF-8 text")
	}
	const key = "KEY"
	alone := reflect.New(reflect.StructOf([]reflect.StructField{
		{Name: "Value", Type: f.spec.Type, Tag: `env:"` + key + `"`},
	}))
	err := env.ParseWithOptions(alone.Interface(), env.Options{
		Environment: map[string]string{key: text},
		FuncMap:     map[reflect.Type]env.ParserFunc{reflect.TypeFor[bool](): parseBool},
	})
	if err != nil {
		return reflect.Value{}, f.reason(err)
	}
	value := alone.Elem().Field(0)
	if f.enum != nil && !slices.Contains(f.enum, text) {
		return reflect.Value{}, errText("is not " + f.Type)
	}
	if n, ok := number(value); ok && (f.min != nil && n < *f.min || f.max != nil && n > *f.max) {
		return reflect.Value{}, errText("is not " + f.Type)
	}
	return value, nil
}

// reason turns an error of the library into the end of a sentence.
func (f field) reason(err error) error {
	if parse, ok := errors.AsType[env.ParseError](err); ok {
		if own, ok := errors.AsType[errText](parse.Err); ok {
			return own
		}
	}
	return errText("is not " + f.Type)
}

// number returns a whole number to compare with the bounds: milliseconds for
// [Millis].
func number(v reflect.Value) (int64, bool) {
	if m, ok := v.Interface().(Millis); ok {
		return m.Duration().Milliseconds(), true
	}
	switch {
	case v.CanInt():
		return v.Int(), true
	case v.CanUint():
		return int64(min(v.Uint(), 1<<63-1)), true
	}
	return 0, false
}

func parseBool(text string) (any, error) {
	switch text {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return nil, errText("is not true, false, 1 or 0")
}

// describe says in words what values the field takes.
func (f field) describe() (string, error) {
	var kind string
	switch reflect.New(f.spec.Type).Elem().Interface().(type) {
	case Addr:
		kind = "host:port or off"
	case bool:
		kind = "true, false, 1 or 0"
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		kind = "a whole number"
	case Level:
		kind = "one of trace, debug, info, warn, error, fatal"
	case List:
		kind = "a comma-separated list"
	case Methods:
		kind = "a comma-separated list of HTTP methods"
	case Millis:
		kind = "whole milliseconds"
	case Number:
		kind = "a number of at least 0"
	case string:
		kind = "text"
		if f.enum != nil {
			kind = "one of " + strings.Join(f.enum, ", ")
		}
	case URL:
		kind = "an http or https URL"
	default:
		return "", fmt.Errorf("config: field %s: type %s is not known", f.spec.Name, f.spec.Type)
	}
	switch {
	case f.min != nil && f.max != nil:
		kind += fmt.Sprintf(" from %d to %d", *f.min, *f.max)
	case f.min != nil:
		kind += fmt.Sprintf(" of at least %d", *f.min)
	case f.max != nil:
		kind += fmt.Sprintf(" of at most %d", *f.max)
	}
	return kind, nil
}

// maxShown bounds what a message repeats of a value or name, in bytes.
const maxShown = 80

// shown quotes a value for an error message: bounded, and without what may be
// the password of a URL.
func shown(value string) string {
	if strings.Contains(value, "://") && strings.Contains(value, "@") {
		return "the value (not shown, it may hold a password)"
	}
	if len(value) > maxShown {
		return strconv.Quote(value[:maxShown]) + "…"
	}
	return strconv.Quote(value)
}
