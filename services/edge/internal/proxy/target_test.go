package proxy_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

func TestServe_PathBytes(t *testing.T) {
	t.Parallel()
	origin, heads := startRecorder(t)
	targets := []string{
		"/", "/x?", "/x??", "/*", "/?a=%zz&b=1;c=2&&=", "/a\"b", "/%7e", "/~", "/a%2Fb", "/a%2fb", "/a|b", "/a^b`c{d}", "/a[b]",
		"/%ff%FE%00", "/caf\xe9", "/caf\xc3\xa9", "/a/../b/./c", "/a;v=1,2", "/a:b@c", "/a#b", "/x?y#z", "//", "///", "//evil.example/x",
		"//a%2Fb?q", "//a?", "/\\evil.example/", "/a//b", "/?", "/+%20", "/a?b=c?d=/e//f", "/%", "/%2", "/http://evil.example/",
	}
	t.Run("Bare", func(t *testing.T) {
		t.Parallel()
		e := startEdge(t, origin.url, nil)
		for _, target := range targets {
			res, _ := e.send(t, "GET "+target+" HTTP/1.1\r\nHost: site.example\r\n\r\n")
			if target == "/%" || target == "/%2" { // no URL (RFC 3986 section 2.1)
				require.Equal(t, http.StatusBadRequest, res.StatusCode, target)
				continue
			}
			require.Equal(t, http.StatusOK, res.StatusCode, "%q", target)
			require.Equal(t, target, targetOf(t, receive(t, heads)))
		}
	})
	origin2, heads2 := startRecorder(t)
	t.Run("BasePath", func(t *testing.T) {
		t.Parallel()
		e := startEdge(t, origin2.url+"/b%61se/x/", nil)
		for _, target := range targets[:len(targets)-4] {
			res, _ := e.send(t, "GET "+target+" HTTP/1.1\r\nHost: site.example\r\n\r\n")
			require.Equal(t, http.StatusOK, res.StatusCode, "%q", target)
			require.Equal(t, "/b%61se/x"+target, targetOf(t, receive(t, heads2)))
		}
		res, _ := e.send(t, "OPTIONS * HTTP/1.1\r\nHost: site.example\r\n\r\n")
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Equal(t, "*", targetOf(t, receive(t, heads2)))
	})
}

func TestF07_EncodedPaths(t *testing.T) {
	t.Parallel()
	origin, heads := startRecorder(t)
	e := startEdge(t, origin.url, nil)
	for _, target := range []string{
		"/download/a%3Fb/file", "/download/a%2Fb/file", "/%64ownload/x/file", "//download/x/file",
		"/download/../download/x/file", "/download/x/file?y=/other",
	} {
		e.send(t, "GET "+target+" HTTP/1.1\r\nHost: site.example\r\n\r\n")
		require.Equal(t, target, targetOf(t, receive(t, heads)))
	}
}

func TestF06_StrangeHeaderValues(t *testing.T) {
	t.Parallel()
	origin, heads := startRecorder(t)
	e := startEdge(t, origin.url, nil)
	send := func(fields string) string {
		res, _ := e.send(t, "GET /?a=%zz&b=1;c=2&&= HTTP/1.1\r\nHost: site.example\r\n"+fields+"\r\n")
		require.Equal(t, http.StatusOK, res.StatusCode)
		head := receive(t, heads)
		require.Equal(t, "/?a=%zz&b=1;c=2&&=", targetOf(t, head))
		return head
	}
	long := make([]byte, 16<<10)
	for i := range long {
		long[i] = 'u'
	}
	head := send("Accept-Language: und\r\nCookie: ;;=;a;b==c; =x\r\nX-Latin: caf\xe9\r\n")
	require.Equal(t, []string{"und"}, field(head, "Accept-Language"))
	require.Equal(t, []string{";;=;a;b==c; =x"}, field(head, "Cookie"))
	require.Equal(t, []string{"caf\xe9"}, field(head, "X-Latin"))
	require.Empty(t, field(head, "User-Agent"), "none is invented")
	require.Empty(t, field(head, "Accept-Encoding"), "none is invented")
	require.Equal(t, []string{string(long)}, field(send("User-Agent: "+string(long)+"\r\n"), "User-Agent"))
	require.Equal(t, []string{"a", "b", "c"}, field(send("User-Agent: a\r\nUser-Agent: b\r\nUser-Agent: c\r\n"), "User-Agent"))
	require.Equal(t, []string{""}, field(send("User-Agent:\r\n"), "User-Agent"))
	require.Equal(t, []string{"x"}, field(send("User-Agent: x\r\n"), "User-Agent"))
}

func TestF21_OnlyTheConfiguredOrigin(t *testing.T) {
	t.Parallel()
	origin, heads := startRecorder(t)
	e := startEdge(t, origin.url, nil)
	tests := []struct {
		name, request string
		status        int
		target, host  string
	}{
		{"TwoSlashes", "GET //evil.example/x HTTP/1.1\r\nHost: site.example\r\n", 200, "//evil.example/x", "site.example"},
		{"Backslash", "GET /\\evil.example/ HTTP/1.1\r\nHost: site.example\r\n", 200, "/\\evil.example/", "site.example"},
		{"AbsoluteForm", "GET http://evil.example/x HTTP/1.1\r\nHost: site.example\r\n", 200, "/x", "evil.example"},
		{"AbsoluteFormUpperCase", "GET HTTP://evil.example/x HTTP/1.1\r\nHost: site.example\r\n", 200, "/x", "evil.example"},
		{"AbsoluteFormBare", "GET http://evil.example HTTP/1.1\r\nHost: site.example\r\n", 200, "/", "evil.example"},
		{"AbsoluteFormQuery", "GET http://evil.example?a=/b HTTP/1.1\r\nHost: site.example\r\n", 200, "/?a=/b", "evil.example"},
		{"AbsoluteFormPort", "GET http://evil.example:81/a%2Fb?c HTTP/1.1\r\nHost: site.example\r\n", 200, "/a%2Fb?c", "evil.example:81"},
		{"AbsoluteFormTwoSlashes", "GET http://evil.example//x?y HTTP/1.1\r\nHost: site.example\r\n", 200, "//x?y", "evil.example"},
		{"OldProtocol", "GET /x HTTP/1.0\r\n", 200, "/x", origin.addr},
		{"OptionsAsterisk", "OPTIONS * HTTP/1.1\r\nHost: site.example\r\n", 200, "*", "site.example"},
		{"At", "GET @evil.example/ HTTP/1.1\r\nHost: site.example\r\n", 400, "", ""},
		{"NoSlash", "GET x HTTP/1.1\r\nHost: site.example\r\n", 400, "", ""},
		{"Asterisk", "GET * HTTP/1.1\r\nHost: site.example\r\n", 400, "", ""},
		{"Opaque", "GET mailto:x HTTP/1.1\r\nHost: site.example\r\n", 400, "", ""},
		{"OtherScheme", "GET ftp://evil.example/x HTTP/1.1\r\nHost: site.example\r\n", 400, "", ""},
		{"NoAuthority", "GET http:/x HTTP/1.1\r\nHost: site.example\r\n", 400, "", ""},
		{"EmptyAuthority", "GET http:///x HTTP/1.1\r\nHost: site.example\r\n", 400, "", ""},
		{"UserInformation", "GET http://me@evil.example/x HTTP/1.1\r\nHost: site.example\r\n", 400, "", ""},
		{"TwoSlashesAndNoPathByte", "GET //a|b HTTP/1.1\r\nHost: site.example\r\n", 400, "", ""},
		{"TwoHosts", "GET /x HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n", 400, "", ""},
		{"NoHost", "GET /x HTTP/1.1\r\n", 400, "", ""},
		{"Connect", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n", 405, "", ""},
		{"ConnectPath", "CONNECT /x HTTP/1.1\r\nHost: evil.example\r\n", 405, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			res, _ := e.send(t, test.request+"\r\n")
			require.Equal(t, test.status, res.StatusCode)
			if test.status != http.StatusOK {
				return
			}
			head := receive(t, heads)
			require.Equal(t, test.target, targetOf(t, head))
			require.Equal(t, []string{test.host}, field(head, "Host"))
			require.Equal(t, proxy.OK, e.outcome(t).Class)
		})
		for len(e.outcomes) > 0 {
			o := e.outcome(t)
			require.Equal(t, proxy.BadRequest, o.Class)
			require.Equal(t, test.status, o.Status)
			require.Error(t, o.Err)
		}
	}
	require.Empty(t, heads, "a refused target never reaches the origin")
}

func TestServe_UpstreamHost(t *testing.T) {
	t.Parallel()
	origin, heads := startRecorder(t)
	e := startEdge(t, origin.url, func(o *proxy.Options) { o.Host = "inside.example" })
	e.send(t, "GET / HTTP/1.1\r\nHost: site.example\r\n\r\n")
	head := receive(t, heads)
	require.Equal(t, []string{"inside.example"}, field(head, "Host"))
	require.Equal(t, []string{"site.example"}, field(head, "X-Forwarded-Host"))
}
