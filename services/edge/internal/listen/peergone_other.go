//go:build !linux

package listen

import "net/http"

// PeerGone always reports false on this system: see the Linux version.
func PeerGone(*http.Request) bool { return false }
