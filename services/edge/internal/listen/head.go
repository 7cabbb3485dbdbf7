package listen

import "bytes"

// headGuard watches the bytes of an HTTP/1 connection for two liberties that net/http takes in a request head without
// a word: a line that goes on in the next one (obs-fold, RFC 9112 section 5.2) and a line that ends with a bare LF
// (section 2.2). A server in front may read such a head differently. The bytes themselves are never changed.
//
// It knows where heads begin because pass stops at the end of each one: nothing behind it is handed out before the
// server has seen the head and has said, through body, how long the body is.
type headGuard struct {
	body   int64 // bytes of the current body still to come
	inLine bool  // the current line has begun
	later  bool  // the current line is not the first of its head
	cr     bool  // the last byte was CR
	empty  bool  // the current line has nothing but CR so far
	bad    bool  // a head broke the rules
}

// pass takes the next bytes of the connection and returns how many of them may be handed out now. It is at least 1 if
// there are any; the others must be given to it again.
func (g *headGuard) pass(p []byte) int {
	done := 0
	if g.body > 0 {
		if int64(len(p)) <= g.body {
			g.body -= int64(len(p))
			return len(p)
		}
		done = int(g.body)
		g.body = 0
	}
	for done < len(p) {
		rest := p[done:]
		if !g.inLine {
			g.inLine, g.empty = true, true
			if g.later && (rest[0] == ' ' || rest[0] == '\t') {
				g.bad = true
			}
		}
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			g.empty = g.empty && !g.cr && string(rest) == "\r"
			g.cr = rest[len(rest)-1] == '\r'
			return len(p)
		}
		if end > 0 {
			g.empty = g.empty && !g.cr && end == 1 && rest[0] == '\r'
			g.cr = rest[end-1] == '\r'
		}
		if !g.cr {
			g.bad = true
		}
		done += end + 1
		g.inLine, g.cr, g.later = false, false, !g.empty
		if g.empty {
			return done
		}
	}
	return done
}
