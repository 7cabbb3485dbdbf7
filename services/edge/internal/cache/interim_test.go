package cache

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestF10_InterimResponsesAreTheLeadersAlone: when they come nobody knows yet whether the response is for others.
func TestF10_InterimResponsesAreTheLeadersAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	g := newGate()
	t.Cleanup(g.open)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Link", "</of/"+r.Header.Get("Cookie")+".css>; rel=preload")
		h.Set("Set-Cookie", "session="+r.Header.Get("Cookie"))
		w.WriteHeader(http.StatusEarlyHints)
		if g.wait(r) {
			h.Set("Cache-Control", "private")
			_, _ = io.WriteString(w, "of "+r.Header.Get("Cookie"))
		}
	})
	// listen asks, and returns the Link fields of the 1xx responses too.
	listen := func(name string) (<-chan reply, chan string) {
		links := make(chan string, 10)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { links <- h.Get("Link"); return nil },
		})
		return s.send(ctx, "/a", "Cookie: "+name), links
	}
	lead, toLeader := listen("leader")
	receive(t, g.arrived)
	require.Equal(t, "</of/leader.css>; rel=preload", receive(t, toLeader), "at once")
	follow, toFollower := listen("follower")
	s.following(2)
	g.open()
	require.Equal(t, "of leader", receive(t, lead).body)
	require.Equal(t, "of follower", receive(t, follow).body)
	require.Equal(t, "</of/follower.css>; rel=preload", receive(t, toFollower), "its own")
	require.Empty(t, toFollower)
	require.Empty(t, toLeader)
}
