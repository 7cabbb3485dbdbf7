package qos

import "math"

// fewAddresses is how many addresses of a subnet are kept in one line of memory.
const fewAddresses = 7

// sightings is when each address of one IPv4 subnet was last tracked. An address
// is its number within the subnet. Most subnets show few of them at a time; the
// others have a table of all.
type sightings struct {
	base    int64                // the beginning of time: times are ms since, plus 1
	all     *allSightings        // nil while few are enough
	times   [fewAddresses]uint32 // 0 = never
	numbers [fewAddresses]uint16
}

// allSightings has a time for each address of a subnet.
type allSightings struct {
	times      []uint32
	openBefore int64 // enough addresses are known to count before then
}

// touch notes that an address of a subnet of so many is tracked at now, which is
// not before any other call's.
func (s *sightings) touch(number uint16, addresses int, now, maxAge int64) {
	if now-s.base >= math.MaxUint32 {
		// Once in 49 days all addresses are forgotten: until enough are seen anew,
		// the subnet is not bad.
		*s = sightings{base: now}
	}
	at := uint32(now-s.base) + 1
	if s.all == nil && !s.touchFew(number, at, s.since(now-maxAge)) {
		s.all = &allSightings{times: make([]uint32, addresses)}
		for i, n := range s.numbers {
			s.all.times[n] = s.times[i]
		}
	}
	if s.all != nil {
		s.all.times[number] = at
	}
}

// touchFew reports whether there is a place for the address among the few: its
// own, or one whose time is before from.
func (s *sightings) touchFew(number uint16, at, from uint32) bool {
	place := -1
	for i, t := range s.times {
		if s.numbers[i] == number && t > 0 {
			place = i
			break
		}
		if t < from {
			place = i
		}
	}
	if place < 0 {
		return false
	}
	s.times[place], s.numbers[place] = at, number
	return true
}

// since is the least time, at least 1, that is not before now.
func (s *sightings) since(now int64) uint32 { return uint32(max(now-s.base, 0)) + 1 }

// enough reports whether at least n addresses, n > 1, were tracked within maxAge,
// both of which are the same in every call.
func (s *sightings) enough(n int, now, maxAge int64) bool {
	times := s.times[:]
	if s.all != nil {
		if now < s.all.openBefore {
			return true
		}
		times = s.all.times
	}
	from := s.since(now - maxAge)
	count, oldest := 0, uint32(math.MaxUint32)
	for _, at := range times {
		if at < from {
			continue
		}
		oldest = min(oldest, at)
		if count++; count >= n {
			if s.all != nil {
				// Times only become later: those counted hold until the oldest ends.
				s.all.openBefore = s.base + int64(oldest) + maxAge
			}
			return true
		}
	}
	return false
}

// countSince is how many addresses were tracked at now or later.
func (s *sightings) countSince(now int64) int64 {
	times := s.times[:]
	if s.all != nil {
		times = s.all.times
	}
	from, n := s.since(now), int64(0)
	for _, at := range times {
		if at >= from {
			n++
		}
	}
	return n
}
