package listen

import (
	"net/http"

	"golang.org/x/sys/unix"
)

// tcpEstablished is TCP_ESTABLISHED of the kernel's tcp_states.h.
const tcpEstablished = 1

// PeerGone reports whether the client has closed its side of the connection on which r came.
//
// net/http cancels a request's context on a disconnect only once the body has been read, since until then it does not
// read on. A request that waits with its body unread must ask: PeerGone looks at the state of the TCP connection and
// reads nothing. It costs a system call. A client that closed only its sending half counts as gone, as it does for
// net/http. False for HTTP/2, where the context tells, for requests that no Server served, and on systems other than
// Linux. Only the handler of r may call it, or a goroutine that ends before it.
func PeerGone(r *http.Request) bool {
	c := connOf(r)
	if c == nil || r.ProtoMajor != 1 {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		gone = err == nil && info.State != tcpEstablished
	})
	return gone || err != nil // closed on this side
}
