package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// Every request here is followed by another one on the same connection. Where the framing is ambiguous, that other
// one is never served: the first is refused, or sent on with exactly one framing, and the connection is closed.
func TestServe_AmbiguousFraming(t *testing.T) {
	t.Parallel()
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	const post = "POST /first HTTP/1.1\r\nHost: a\r\n"
	tests := []struct {
		name, request string
		status        int      // of the only answer
		framing       []string // what the origin gets as Content-Length and Transfer-Encoding; nil: nothing whole
		body          string   // and behind the head
	}{
		{"LengthAndChunked", post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, []string{"chunked"}, "0\r\n\r\n"},
		{"ChunkedAndLength", post + "Transfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n1\r\nx\r\n0\r\n\r\n", 200, []string{"chunked"}, "1\r\nx\r\n0\r\n\r\n"},
		{"ChunkedAndBadLength", post + "Transfer-Encoding: chunked\r\nContent-Length: x\r\n\r\n0\r\n\r\n", 400, nil, ""},
		{"Chunked", post + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 200, []string{"chunked"}, "1\r\nx\r\n0\r\n\r\n"},
		{"ChunkedUpperCase", post + "Transfer-Encoding: CHUNKED\r\n\r\n1\r\nx\r\n0\r\n\r\n", 200, []string{"chunked"}, "1\r\nx\r\n0\r\n\r\n"},
		{"ChunkExtension", post + "Transfer-Encoding: chunked\r\n\r\n1;a=\"b;c\"\r\nx\r\n0;d\r\n\r\n", 200, []string{"chunked"}, "1\r\nx\r\n0\r\n\r\n"},
		{"ChunkedTwice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501, nil, ""},
		{"ChunkedList", post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501, nil, ""},
		{"ChunkedThenIdentity", post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501, nil, ""},
		{"Identity", post + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx", 501, nil, ""},
		{"Gzip", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, nil, ""},
		{"QuotedChunked", post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 501, nil, ""},
		{"VerticalTab", post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400, nil, ""},
		{"SpaceBeforeColon", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400, nil, ""},
		{"SpaceBeforeLengthColon", post + "Content-Length : 5\r\n\r\nhello", 400, nil, ""},
		{"NoColon", post + "Content-Length\r\n\r\n", 400, nil, ""},
		{"TwoLengths", post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400, nil, ""},
		{"LengthList", post + "Content-Length: 5, 5\r\n\r\nhello", 400, nil, ""},
		{"LengthSigned", post + "Content-Length: +5\r\n\r\nhello", 400, nil, ""},
		{"LengthNegative", post + "Content-Length: -5\r\n\r\nhello", 400, nil, ""},
		{"LengthHex", post + "Content-Length: 0x5\r\n\r\nhello", 400, nil, ""},
		{"LengthEmpty", post + "Content-Length: \r\n\r\n", 400, nil, ""},
		{"LengthHuge", post + "Content-Length: 99999999999999999999\r\n\r\n", 400, nil, ""},
		{"FoldedField", post + "X-A: b\r\n c\r\n\r\n", 400, nil, ""},
		{"FoldedCoding", post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400, nil, ""},
		{"FoldedWithTab", post + "Content-Length: 5\r\n\tX: y\r\n\r\nhello", 400, nil, ""},
		{"FoldedFirstLine", "POST /first HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n", 400, nil, ""},
		{"BareLF", post + "X-A: b\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, nil, ""},
		{"BareLFEverywhere", "POST /first HTTP/1.1\nHost: a\nContent-Length: 0\n\n", 400, nil, ""},
		{"BareLFAtTheEnd", post + "Content-Length: 0\r\n\n", 400, nil, ""},
		{"BareCR", post + "X-A: b\rContent-Length: 5\r\n\r\n", 400, nil, ""},
		{"NullByte", post + "X-A: b\x00\r\n\r\n", 400, nil, ""},
		{"ChunkSizeNotHex", post + "Transfer-Encoding: chunked\r\n\r\nz\r\n\r\n0\r\n\r\n", 400, nil, ""},
		{"ChunkSizePrefix", post + "Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n", 400, nil, ""},
		{"ChunkSizeSigned", post + "Transfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n", 400, nil, ""},
		{"ChunkSizeHuge", post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx\r\n0\r\n\r\n", 400, nil, ""},
		{"ChunkBareLF", post + "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n", 400, nil, ""},
		{"ChunkTooShort", post + "Transfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n0\r\n\r\n", 400, nil, ""},
		{"ChunkExtensionBareLF", post + "Transfer-Encoding: chunked\r\n\r\n1;a\nb\r\nx\r\n0\r\n\r\n", 400, nil, ""},
		{"TrailerLength", post + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\nContent-Length: 5\r\n\r\n", 400, nil, ""},
		{"OldProtocolChunked", "POST /first HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, []string{"0"}, ""},
		{"OldProtocolBoth", "POST /first HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\nx", 200, []string{"1"}, "x"},
		{"OldProtocolLength", "POST /first HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", 200, []string{"1"}, "x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			origin, messages := startRecorder(t)
			e := startEdge(t, origin.url, nil)
			c, br := e.dial(t)
			write(t, c, test.request+smuggled)
			res, err := http.ReadResponse(br, &http.Request{Method: http.MethodPost})
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, test.status, res.StatusCode)
			require.True(t, res.Close, "the answer says that the connection is closed")
			rest, _ := io.ReadAll(br) // to its end; a reset counts as one, since bytes were left unread
			require.Empty(t, string(rest), "no second answer")

			if test.framing == nil {
				require.Empty(t, messages, "the origin gets no whole request")
				return
			}
			head, body, _ := strings.Cut(receive(t, messages), "\r\n\r\n")
			require.Equal(t, "/first", targetOf(t, head))
			require.Equal(t, test.framing, append(field(head, "Content-Length"), field(head, "Transfer-Encoding")...))
			require.Equal(t, test.body, body)
			require.Equal(t, proxy.OK, e.outcome(t).Class)
			require.Empty(t, messages, "the origin never sees the second request")
		})
	}
}

// Requests with clear framing keep the connection, also when they come all at once.
func TestServe_ClearFraming(t *testing.T) {
	t.Parallel()
	origin, messages := startRecorder(t)
	e := startEdge(t, origin.url, nil)
	c, br := e.dial(t)
	write(t, c, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"+
		"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\na\n b\nGET /x\r\n\r\n"+
		"POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"+
		"GET /4 HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nX-Blank: \t\r\n\r\n")
	want := []string{"", "a\n b\nGET /x\r\n\r\n", "hello", ""}
	for i, target := range []string{"/1", "/2", "/3", "/4"} {
		res, _ := readResponse(t, br, http.MethodGet)
		require.Equal(t, http.StatusOK, res.StatusCode, target)
		require.False(t, res.Close, target)
		head, body, _ := strings.Cut(receive(t, messages), "\r\n\r\n")
		require.Equal(t, target, targetOf(t, head))
		require.Equal(t, want[i], body)
		require.LessOrEqual(t, len(field(head, "Content-Length")), 1)
	}
}
