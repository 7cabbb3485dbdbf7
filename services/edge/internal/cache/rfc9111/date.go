package rfc9111

import (
	"net/http"
	"time"
)

// parseDate reads the one value of a date field in any of the three forms of RFC 9110 section 5.6.7. It reports false
// for none, several or an invalid one.
func parseDate(lines []string) (time.Time, bool) {
	if len(lines) != 1 {
		return time.Time{}, false
	}
	t, err := http.ParseTime(trimSpace(lines[0]))
	return t, err == nil
}
