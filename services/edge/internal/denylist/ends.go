package denylist

// minute is the length of the steps of [ends], in microseconds.
const minute = 60 * 1_000_000

// ends counts blocks by the minute in which they end. So blocks in force can be
// counted at any time without looking at each, and a mark compared.
type ends map[int64]int

// count is a number that is known up to what ends within one minute.
type count struct{ least, most int }

// fits reports whether n may be the number.
func (c count) fits(n int) bool { return c.least <= n && n <= c.most }

func (e ends) add(until int64, n int) {
	m := until / minute
	if e[m] += n; e[m] == 0 {
		delete(e, m)
	}
}

// change counts a block in place of an old one, if that was known.
func (e ends) change(old block, known bool, b block) {
	if known {
		e.add(old.until, -1)
	}
	e.add(b.until, 1)
}

// inForce counts the blocks that end after at, in Unix microseconds.
func (e ends) inForce(at int64) count {
	var c count
	for m, n := range e {
		switch {
		case m > at/minute:
			c.least += n
			c.most += n
		case m == at/minute:
			c.most += n
		}
	}
	return c
}

// endedBefore counts the blocks that ended in a minute before that of at.
func (e ends) endedBefore(at int64) int {
	n := 0
	for m, ended := range e {
		if m < at/minute {
			n += ended
		}
	}
	return n
}
