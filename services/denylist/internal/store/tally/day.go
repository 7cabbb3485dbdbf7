package tally

import (
	"time"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

const secondsPerDay = 24 * 60 * 60

// Day is a calendar day in UTC, as the number of days since 1970-01-01.
type Day int32

// firstDay is the day before which no window and no retention reaches: that of
// the zero time.
var firstDay = DayOf(time.Time{})

// DayOf is the day of a time. Years 0 to 9999 fit.
func DayOf(t time.Time) Day {
	s := t.Unix()
	if s < 0 {
		s -= secondsPerDay - 1 // round down, not towards zero
	}
	return Day(s / secondsPerDay)
}

// Begin is the first moment of the day.
func (d Day) Begin() time.Time { return time.Unix(int64(d)*secondsPerDay, 0).UTC() }

// String is the day as in ISO 8601.
func (d Day) String() string { return d.Begin().Format(time.DateOnly) }

// OldestDay is the oldest day whose counts are kept at the time given. A count
// leaves the window WindowDays after its day began, and is kept for
// PruneRetention from then.
func OldestDay(now time.Time, s store.Settings) Day {
	last := int64(DayOf(now.Add(-s.PruneRetention))) - int64(s.WindowDays) + 1
	return Day(max(last, int64(firstDay)))
}

// WindowStart is the first day of the window that ends with the day.
func (d Day) WindowStart(s store.Settings) Day {
	return min(d, Day(max(int64(d)-int64(s.WindowDays)+1, int64(firstDay))))
}
