package rfc9111

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestResponse_Precondition pins 304 answers (RFC 9110 section 13, RFC 9111 section 4.3.2).
func TestResponse_Precondition(t *testing.T) {
	t.Parallel()
	modified := "Last-Modified: " + date(-time.Hour)
	for name, tt := range map[string]struct {
		stored  []string
		request []string
		want    bool
	}{
		"no condition":                      {stored: []string{`ETag: "a"`}},
		"the same tag":                      {stored: []string{`ETag: "a"`}, request: []string{`If-None-Match: "a"`}, want: true},
		"another tag":                       {stored: []string{`ETag: "a"`}, request: []string{`If-None-Match: "b"`}},
		"tags in another case":              {stored: []string{`ETag: "a"`}, request: []string{`If-None-Match: "A"`}},
		"weak and strong 8.8.3.2":           {stored: []string{`ETag: "a"`}, request: []string{`If-None-Match: W/"a"`}, want: true},
		"strong and weak":                   {stored: []string{`ETag: W/"a"`}, request: []string{`If-None-Match: "a"`}, want: true},
		"w/ is no tag":                      {stored: []string{`ETag: "a"`}, request: []string{`If-None-Match: w/"a"`}},
		"one of a list":                     {stored: []string{`ETag: "a"`}, request: []string{`If-None-Match: "b", "c,a" , "a"`}, want: true},
		"in a quoted comma":                 {stored: []string{`ETag: "a"`}, request: []string{`If-None-Match: "b,"a","`}},
		"in another line":                   {stored: []string{`ETag: "a"`}, request: []string{`If-None-Match: "b"`, `If-None-Match: "a"`}, want: true},
		"anything":                          {stored: nil, request: []string{`If-None-Match: *`}, want: true},
		"a tag, none stored":                {stored: nil, request: []string{`If-None-Match: "a"`}},
		"an empty tag":                      {stored: []string{`ETag: ""`}, request: []string{`If-None-Match: ""`}, want: true},
		"an empty field":                    {stored: []string{`ETag:`}, request: []string{`If-None-Match:`}},
		"no quotes":                         {stored: []string{`ETag: "a"`}, request: []string{`If-None-Match: a`}},
		"no quotes on either side":          {stored: []string{`ETag: a`}, request: []string{`If-None-Match: a`}, want: true},
		"obsolete text":                     {stored: []string{"ETag: \"\xfc\""}, request: []string{"If-None-Match: \"\xfc\""}, want: true},
		"two stored tags":                   {stored: []string{`ETag: "a"`, `ETag: "b"`}, request: []string{`If-None-Match: "a"`}},
		"If-None-Match first 13.2.2":        {stored: []string{`ETag: "a"`, modified}, request: []string{`If-None-Match: "b"`, "If-Modified-Since: " + date(0)}},
		"not modified":                      {stored: []string{modified}, request: []string{"If-Modified-Since: " + date(-time.Hour)}, want: true},
		"not modified, RFC 850":             {stored: []string{modified}, request: []string{"If-Modified-Since: " + start.Add(-time.Hour).Format("Monday, 02-Jan-06 15:04:05 GMT")}, want: true},
		"not modified since later":          {stored: []string{modified}, request: []string{"If-Modified-Since: " + date(0)}, want: true},
		"modified":                          {stored: []string{modified}, request: []string{"If-Modified-Since: " + date(-time.Hour-time.Second)}},
		"since no date 13.1.3":              {stored: []string{modified}, request: []string{"If-Modified-Since: soon"}},
		"since two dates":                   {stored: []string{modified}, request: []string{"If-Modified-Since: " + date(0), "If-Modified-Since: " + date(0)}},
		"Date where no Last-Modified 4.3.2": {stored: []string{"Date: " + date(-time.Minute)}, request: []string{"If-Modified-Since: " + date(-time.Minute)}, want: true},
		"Date is later":                     {stored: []string{"Date: " + date(0)}, request: []string{"If-Modified-Since: " + date(-time.Minute)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := store(t, &Policy{}, append(tt.stored, "Cache-Control: max-age=600")...)
			require.Equal(t, tt.want, res.Precondition(fields(tt.request...)))
		})
	}
}

func TestResponse_PreconditionOfOtherStatuses(t *testing.T) {
	t.Parallel()
	// Where the answer would be no success, conditions do not count (RFC 9110 section 13.2.1).
	for status, want := range map[int]bool{200: true, 203: true, 299: true, 301: false, 404: false, 503: false} {
		res, reason := (&Policy{}).Store(get(), status, fields("Cache-Control: max-age=1", `ETag: "a"`), start, start)
		require.Equal(t, Stored, reason)
		require.Equal(t, want, res.Precondition(fields(`If-None-Match: "a"`)), status)
	}
}

func TestForOrigin(t *testing.T) {
	t.Parallel()
	require.True(t, ForOrigin(fields(`If-Match: "a"`)))
	require.True(t, ForOrigin(fields("If-Unmodified-Since: "+date(0))))
	require.False(t, ForOrigin(fields(`If-None-Match: "a"`, "If-Modified-Since: "+date(0), "If-Range: x")))
}

// TestResponse_IfRange pins when a range is honoured (RFC 9110 section 13.1.5).
func TestResponse_IfRange(t *testing.T) {
	t.Parallel()
	modified := "Last-Modified: " + date(-time.Hour)
	for name, tt := range map[string]struct {
		stored  []string
		request []string
		want    bool
	}{
		"none":                      {want: true},
		"the same tag":              {stored: []string{`ETag: "a"`}, request: []string{`If-Range: "a"`}, want: true},
		"another tag":               {stored: []string{`ETag: "a"`}, request: []string{`If-Range: "b"`}},
		"a weak tag":                {stored: []string{`ETag: W/"a"`}, request: []string{`If-Range: W/"a"`}},
		"a weak tag stored":         {stored: []string{`ETag: W/"a"`}, request: []string{`If-Range: "a"`}},
		"no tag stored":             {request: []string{`If-Range: "a"`}},
		"broken tag":                {stored: []string{`ETag: "a" "`}, request: []string{`If-Range: "a" "`}},
		"two":                       {stored: []string{`ETag: "a"`}, request: []string{`If-Range: "a"`, `If-Range: "a"`}},
		"the same date":             {stored: []string{modified}, request: []string{"If-Range: " + date(-time.Hour)}, want: true},
		"a later date":              {stored: []string{modified}, request: []string{"If-Range: " + date(0)}},
		"no date stored":            {request: []string{"If-Range: " + date(0)}},
		"no date":                   {stored: []string{modified}, request: []string{"If-Range: x"}},
		"a date that is not strong": {stored: []string{"Last-Modified: " + date(0), "Date: " + date(0)}, request: []string{"If-Range: " + date(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := store(t, &Policy{}, append(tt.stored, "Cache-Control: max-age=600")...)
			require.Equal(t, tt.want, res.IfRange(fields(tt.request...)))
		})
	}
}

// FuzzPrecondition compares If-None-Match with a plain reading for lists of well-formed tags, and checks that other
// input never matches a tag it does not contain.
func FuzzPrecondition(f *testing.F) {
	f.Add("abc", `W/"abc", "x"`)
	f.Add("", `""`)
	f.Add("a,b", `"a,b"`)
	f.Add("a", `"b","a`)
	f.Fuzz(func(t *testing.T, tag, field string) {
		stored := `"` + tag + `"`
		if _, ok := opaqueTag(stored); !ok {
			return
		}
		res, reason := (&Policy{}).Store(get(), 200, http.Header{"Cache-Control": {"max-age=1"}, "Etag": {stored}}, start, start)
		require.Equal(t, Stored, reason)
		got := res.Precondition(http.Header{"If-None-Match": {field}})
		require.Equal(t, plainMatch(stored, field), got)
	})
}

// plainMatch walks over the field with the grammar of RFC 9110 section 13.1.2 in mind: what stands between two commas
// outside of quotes is a tag if, without W/, it is one quoted text without spaces and controls.
func plainMatch(stored, field string) bool {
	field = trimSpace(field)
	if field == "*" || field == stored {
		return true
	}
	var parts []string
	part := ""
	inside := false
	for i := range len(field) {
		switch c := field[i]; {
		case c == ',' && !inside:
			parts, part = append(parts, part), ""
		default:
			inside = inside != (c == '"')
			part += string([]byte{c})
		}
	}
	for _, part := range append(parts, part) {
		part = trimSpace(part)
		if part == stored || part == "W/"+stored {
			return true
		}
	}
	return false
}
