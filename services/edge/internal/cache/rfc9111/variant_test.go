package rfc9111

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestF11_VaryOverSeveralLines: all lines of Vary count as one list, without regard to case (RFC 9110 sections 5.3 and
// 12.5.5), and each client gets its own variant.
func TestF11_VaryOverSeveralLines(t *testing.T) {
	t.Parallel()
	res := store(t, &Policy{}, "Cache-Control: max-age=60", "Vary: accept-encoding", "Vary: , X-Requested-With,Accept-Encoding")
	require.Equal(t, []string{"Accept-Encoding", "X-Requested-With"}, res.Vary())
	index := NewIndex(res.URL, res.Vary(), 7)
	keys := map[Key]bool{}
	for _, h := range []http.Header{
		fields("Accept-Encoding: br"), fields(), fields("Accept-Encoding: br", "X-Requested-With: XMLHttpRequest"),
		fields("X-Requested-With: XMLHttpRequest"), fields("Accept-Encoding:"),
	} {
		require.Equal(t, index.Variant(Key{1}, h), index.Variant(Key{1}, h.Clone()))
		keys[index.Variant(Key{1}, h)] = true
	}
	require.Len(t, keys, 5)
}

func TestPolicy_VaryHeaders(t *testing.T) {
	t.Parallel()
	p := &Policy{VaryHeaders: []string{"accept-encoding", "X-Device"}}
	require.Equal(t, []string{"Accept-Encoding", "X-Device"}, store(t, p, "Cache-Control: max-age=60").Vary())
	require.Equal(t, []string{"Accept-Encoding", "Foo", "X-Device"}, store(t, p, "Cache-Control: max-age=60", "Vary: foo, x-device").Vary())
}

// TestResponse_VariantNormalises pins which requests select the same variant (RFC 9111 section 4.1).
func TestResponse_VariantNormalises(t *testing.T) {
	t.Parallel()
	index := NewIndex("", []string{"Accept-Encoding", "Accept-Language", "Foo"}, 1)
	for name, tt := range map[string]struct {
		a, b http.Header
		same bool
	}{
		"lines joined":                {fields("Foo: 1, 2"), fields("Foo: 1", "Foo: 2"), true},
		"space around commas":         {fields("Foo: 1,2"), http.Header{"Foo": {" 1 ,\t2 "}}, true},
		"empty elements":              {fields("Foo: 1,,2,"), fields("Foo: 1,2"), true},
		"space within":                {fields("Foo: a b"), fields("Foo: ab"), false},
		"case":                        {fields("Foo: a"), fields("Foo: A"), false},
		"order":                       {fields("Foo: 1, 2"), fields("Foo: 2, 1"), false},
		"quoted comma":                {fields(`Foo: "1, 2"`), fields(`Foo: "1,2"`), false},
		"element borders":             {fields("Foo: 12"), fields("Foo: 1,2"), false},
		"missing or empty":            {fields(), fields("Foo:"), false},
		"other fields":                {fields("Bar: 1"), fields(), true},
		"value in another field":      {fields("Foo: en"), fields("Accept-Language: en"), false},
		"languages in another order":  {fields("Accept-Language: en, de"), fields("Accept-Language: de, en"), true},
		"languages in another case":   {fields("Accept-Language: en, de"), fields("Accept-Language: eN, De"), true},
		"languages with space":        {fields("Accept-Language: en, de"), http.Header{"Accept-Language": {" en ,   de"}}, true},
		"a weight of one":             {fields("Accept-Language: en;q=1.000, de;q=0.5"), fields("Accept-Language: en, de; q=0.5"), true},
		"a weight above one":          {fields("Accept-Language: en;q=1.5"), fields("Accept-Language: en"), false},
		"another weight":              {fields("Accept-Language: en;q=0.5"), fields("Accept-Language: en;q=0.4"), false},
		"another language":            {fields("Accept-Language: en"), fields("Accept-Language: en, de"), false},
		"the same language twice":     {fields("Accept-Language: en, EN"), fields("Accept-Language: en"), true},
		"codings in another order":    {fields("Accept-Encoding: gzip, br"), fields("Accept-Encoding: br", "Accept-Encoding: gzip"), true},
		"a coding that is refused":    {fields("Accept-Encoding: gzip;q=0"), fields("Accept-Encoding: gzip"), false},
		"a coding that is called so":  {fields("Accept-Encoding: gz ip"), fields("Accept-Encoding: gzip"), true},
		"a prefix is another element": {fields("Accept-Encoding: a, ab"), fields("Accept-Encoding: a, a, b"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.same, index.Variant(Key{1}, tt.a) == index.Variant(Key{1}, tt.b))
		})
	}
}

// TestResponse_VariantOfAFlood: so many preferences that sorting them would be work are compared as they are.
func TestResponse_VariantOfAFlood(t *testing.T) {
	t.Parallel()
	index := NewIndex("", []string{"Accept-Encoding"}, 1)
	few, many := manyNames(maxPreferences-1), manyNames(maxPreferences)
	key := func(value string) Key { return index.Variant(Key{1}, http.Header{"Accept-Encoding": {value}}) }
	require.Equal(t, key("a,"+few), key(few+"a"), "a set")
	require.NotEqual(t, key("a,"+many), key(many+"a"), "a list")
	require.Equal(t, key("a,"+many), key("a, "+many))
}

func TestResponse_VariantDependsOnAllParts(t *testing.T) {
	t.Parallel()
	h := fields("Foo: 1", "Bar: 1")
	keys := map[Key]bool{}
	for _, key := range []Key{
		NewIndex("", []string{"Foo"}, 1).Variant(Key{1}, h),
		NewIndex("", []string{"Foo"}, 2).Variant(Key{1}, h), // an index made anew does not find the old variants
		NewIndex("", []string{"Foo"}, 1).Variant(Key{2}, h),
		NewIndex("", []string{"Bar"}, 1).Variant(Key{1}, h),
		NewIndex("", nil, 1).Variant(Key{1}, h),
	} {
		keys[key] = true
	}
	require.Len(t, keys, 5)
}

func TestResponse_Extend(t *testing.T) {
	t.Parallel()
	names := []string{"B", "D"}
	index := NewIndex("u", names, 9)
	names[0] = "changed"
	require.True(t, index.IsIndex())
	same, ok := index.Extend(store(t, &Policy{}, "Cache-Control: max-age=1", "Vary: d"))
	require.True(t, ok)
	require.Same(t, index, same)
	wider, ok := index.Extend(store(t, &Policy{}, "Cache-Control: max-age=1", "Vary: C,a"))
	require.True(t, ok)
	require.Equal(t, NewIndex("u", []string{"A", "B", "C", "D"}, 9), wider)
	require.Equal(t, []string{"B", "D"}, index.Vary())
	_, ok = index.Extend(store(t, &Policy{}, "Cache-Control: max-age=1", "Vary: "+manyNames(maxVaryNames-1)))
	require.False(t, ok)
}

// FuzzVary compares what Vary means with a plain reading of it: lines joined, split at commas, trimmed.
func FuzzVary(f *testing.F) {
	for _, seed := range []string{"Accept-Encoding\nX-Requested-With", "*", "a, *", ",,", "a b", "A,a", "\n,*", "\"*\"", "a,\tb"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(text, "\n")
		want, ok := []string{}, true
		for name := range strings.SplitSeq(strings.Join(lines, ","), ",") {
			name = strings.Trim(name, " \t")
			if name == "" {
				continue
			}
			ok = ok && name != "*" && !strings.EqualFold(name, "X-Forwarded-For") && !strings.EqualFold(name, "X-Request-Id") && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~") == ""
			want = append(want, http.CanonicalHeaderKey(name))
		}
		if strings.Contains(text, `"`) { // no token, and commas within would be split above
			ok = false
		}
		slices.Sort(want)
		want = slices.Compact(want)
		ok = ok && len(want) <= maxVaryNames
		res, reason := (&Policy{TTL: time.Minute}).Store(get(), http.StatusOK, http.Header{"Vary": lines}, start, start)
		if !ok {
			require.Equal(t, VaryStar, reason)
			return
		}
		require.Equal(t, Stored, reason)
		require.Equal(t, want, append([]string{}, res.Vary()...))
	})
}

// FuzzVariant checks that two values select the same variant only if they are the same list of elements.
func FuzzVariant(f *testing.F) {
	f.Add("a, b", "a,b")
	f.Add("a b", "ab")
	f.Add("", ",")
	f.Add("\"a,b\"", "\"a, b\"")
	f.Fuzz(func(t *testing.T, a, b string) {
		index := NewIndex("", []string{"Foo"}, 1)
		same := index.Variant(Key{}, http.Header{"Foo": {a}}) == index.Variant(Key{}, http.Header{"Foo": {b}})
		require.Equal(t, slices.Equal(elements(a), elements(b)), same)
	})
}

// elements splits a list at the commas that are not in quoted strings, byte by byte.
func elements(s string) []string {
	var list []string
	var element []byte
	quoted, escaped := false, false
	flush := func() {
		if e := strings.Trim(string(element), " \t"); e != "" {
			list = append(list, e)
		}
		element = element[:0]
	}
	for i := range len(s) {
		c := s[i]
		if c == ',' && !quoted {
			flush()
			continue
		}
		element = append(element, c)
		switch {
		case escaped:
			escaped = false
		case c == '\\' && quoted:
			escaped = true
		case c == '"':
			quoted = !quoted
		}
	}
	flush()
	return list
}
