//go:build !linux

package origin

import "net"

// closedByPeer cannot tell here: a connection counts until the server notices.
func closedByPeer(net.Conn) bool { return false }
