package cache

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
)

// numbered is a body in which each place can be told from its content.
func numbered(size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte('!' + i*7919%90)
	}
	return string(b)
}

func TestF08_APartialAnswerIsNeverTheWhole(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	const size = 12345
	body := numbered(size)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "max-age=60")
		h.Set("Etag", `"v1"`)
		h.Set("Content-Type", "image/avif")
		if r.Header.Get("Range") == "bytes=0-499" {
			h.Set("Content-Range", "bytes 0-499/12345")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, body[:500])
			return
		}
		_, _ = io.WriteString(w, body)
	})
	r := s.get("/image.avif", "Range: bytes=0-499").is(t, "MISS", "fwd=partial")
	require.Equal(t, http.StatusPartialContent, r.StatusCode)
	require.Equal(t, body[:500], r.body)
	r = s.get("/image.avif").is(t, "MISS", "uri-miss")
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.Equal(t, body, r.body)

	for spec, want := range map[string]struct {
		status int
		body   string
		field  string
	}{
		"bytes=100-199":     {206, body[100:200], "bytes 100-199/12345"},
		"bytes=-10":         {206, body[size-10:], "bytes 12335-12344/12345"},
		"bytes=12340-99999": {206, body[12340:], "bytes 12340-12344/12345"},
		"bytes=0-":          {206, body, "bytes 0-12344/12345"},
		"bytes=99999-":      {416, "", "bytes */12345"},
		"bytes=5-1":         {200, body, ""},
		"lines=1-2":         {200, body, ""},
	} {
		r := s.get("/image.avif", "Range: "+spec).is(t, "HIT", "hit")
		require.Equal(t, want.status, r.StatusCode, spec)
		require.Equal(t, want.body, r.body, spec)
		require.EqualValues(t, len(want.body), r.ContentLength, spec)
		require.Equal(t, want.field, r.Header.Get("Content-Range"), spec)
	}
	for value, want := range map[string]int{`"v1"`: 206, `"v2"`: 200, `W/"v1"`: 200, "Mon, 02 Nov 2026 10:00:00 GMT": 200} {
		r := s.get("/image.avif", "Range: bytes=100-199", "If-Range: "+value).is(t, "HIT", "hit")
		require.Equal(t, want, r.StatusCode, value)
		if want == 200 {
			require.Equal(t, body, r.body)
		}
	}
	require.EqualValues(t, 2, s.asked.Load())
}

func TestF08_TwoRangesAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	body := numbered(12345)
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Type", "image/avif")
		_, _ = io.WriteString(w, body)
	})
	s.get("/image.avif")
	r := s.get("/image.avif", "Range: bytes=0-9, 1000-1499,-5").is(t, "HIT", "hit")
	require.Equal(t, http.StatusPartialContent, r.StatusCode)
	require.EqualValues(t, len(r.body), r.ContentLength)
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	require.NoError(t, err)
	require.Equal(t, "multipart/byteranges", kind)
	parts := multipart.NewReader(strings.NewReader(r.body), params["boundary"])
	for _, want := range []struct{ field, body string }{
		{"bytes 0-9/12345", body[:10]}, {"bytes 1000-1499/12345", body[1000:1500]}, {"bytes 12340-12344/12345", body[12340:]},
	} {
		part, err := parts.NextPart()
		require.NoError(t, err)
		require.Equal(t, want.field, part.Header.Get("Content-Range"))
		require.Equal(t, "image/avif", part.Header.Get("Content-Type"))
		got, err := io.ReadAll(part)
		require.NoError(t, err)
		require.Equal(t, want.body, string(got))
	}
	_, err = parts.NextPart()
	require.ErrorIs(t, err, io.EOF)
}

func TestF10_SetCookie(t *testing.T) {
	t.Parallel()
	list := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=60")
		w.Header().Add("Set-Cookie", "session=AAA")
		w.Header().Add("Set-Cookie", "lang=en")
		_, _ = io.WriteString(w, "list")
	}
	t.Run("by default", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		s.answer(list)
		require.Len(t, s.get("/list").is(t, "MISS", "").Header["Set-Cookie"], 2)
		require.Len(t, s.get("/list").is(t, "MISS", "").Header["Set-Cookie"], 2)
		require.EqualValues(t, 2, s.asked.Load())
	})
	t.Run("stripped", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, policy(rfc9111.Policy{StripSetCookie: true}))
		s.answer(list)
		require.Equal(t, []string{"session=AAA", "lang=en"}, s.get("/list").is(t, "MISS", "stored").Header["Set-Cookie"])
		require.Empty(t, s.get("/list").is(t, "HIT", "hit").Header["Set-Cookie"])
	})
	t.Run("stripped, shared while it comes", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, policy(rfc9111.Policy{StripSetCookie: true}))
		g := newGate()
		t.Cleanup(g.open)
		s.answer(func(w http.ResponseWriter, r *http.Request) {
			if g.wait(r) {
				list(w, r)
			}
		})
		all := s.herd(10, "/list")
		s.following(10)
		g.open()
		cookies := 0
		for _, one := range all {
			r := receive(t, one)
			require.NoError(t, r.err)
			cookies += len(r.Header["Set-Cookie"])
		}
		require.Equal(t, 2, cookies, "they are the first asker's alone")
	})
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func TestF11_VaryOverSeveralLines(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	z := zipped(t, "plain")
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "max-age=60")
		h.Add("Vary", "Accept-Encoding")
		h.Add("Vary", "X-Requested-With")
		switch {
		case r.Header.Get("X-Requested-With") != "":
			_, _ = io.WriteString(w, "for a script")
		case r.Header.Get("Accept-Encoding") == "gzip":
			h.Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, z)
		default:
			_, _ = io.WriteString(w, "plain")
		}
	})
	clients := []struct {
		fields []string
		body   string
	}{
		{[]string{"Accept-Encoding: gzip"}, z},
		{nil, "plain"},
		{[]string{"Accept-Encoding: gzip", "X-Requested-With: XMLHttpRequest"}, "for a script"},
	}
	for _, c := range clients {
		require.Equal(t, c.body, s.get("/a", c.fields...).is(t, "MISS", "stored").body)
	}
	for _, c := range clients {
		require.Equal(t, c.body, s.get("/a", c.fields...).is(t, "HIT", "hit").body)
	}
	require.EqualValues(t, 3, s.asked.Load())

	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Vary", "*")
		_, _ = io.WriteString(w, "never twice")
	})
	s.get("/star").is(t, "MISS", "")
	s.get("/star").is(t, "MISS", "")
	require.EqualValues(t, 5, s.asked.Load())
}

// TestF11_VariantsShareNoFetch: who waits for a response and is not meant by it
// gets one of his own, which those like him share.
func TestF11_VariantsShareNoFetch(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	g := newGate()
	t.Cleanup(g.open)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		if g.wait(r) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Vary", "Accept-Language")
			_, _ = io.WriteString(w, "in "+r.Header.Get("Accept-Language"))
		}
	})
	languages := []string{"de", "en", "fr"}
	var all []<-chan reply
	for range 30 {
		for _, language := range languages {
			all = append(all, s.send(t.Context(), "/a", "Accept-Language: "+language))
		}
	}
	s.following(90)
	g.open()
	for i, one := range all {
		r := receive(t, one) // a hit, if it had come by the time of the turn
		require.NoError(t, r.err)
		require.Equal(t, "in "+languages[i%3], r.body)
	}
	require.EqualValues(t, 3, s.asked.Load())
	for _, language := range languages {
		require.Equal(t, "in "+language, s.get("/a", "Accept-Language: "+language).is(t, "HIT", "hit").body)
	}
}

func TestF12_WhatGoesIntoTheKey(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, r.Host+r.RequestURI+" links to "+r.Header.Get("X-Forwarded-Host"))
	})
	for _, one := range []struct{ path, host string }{
		{"/get?name=x", "one.example"}, {"/?getname=x", "one.example"}, {"/a?b", "one.example"}, {"/a%3Fb", "one.example"},
		{"/a", "one.example"}, {"//a", "one.example"}, {"/a/../a", "one.example"}, {"/a", "two.example"},
	} {
		for _, how := range []string{"MISS", "HIT"} {
			r := s.get(one.path, "Host: "+one.host).is(t, how, "")
			require.Equal(t, one.host+one.path+" links to "+one.host, r.body)
		}
	}
	s.get("/a", "Host: ONE.example").is(t, "HIT", "hit")
	s.get("/a", "Host: one.example:80").is(t, "HIT", "hit")

	r := s.get("/links", "Host: one.example", "X-Forwarded-Host: evil.example").is(t, "MISS", "stored")
	require.NotContains(t, r.body, "evil")
	require.NotContains(t, s.get("/links", "Host: one.example").is(t, "HIT", "hit").body, "evil")
}
