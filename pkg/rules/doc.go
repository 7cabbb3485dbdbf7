// Package rules decides which requests a gate applies to. It is the rule
// engine of cork-cache-n-queue ("the seed"): a ruleset is a JSON array of
// groups, a group is an array of conditions. A ruleset matches if any group
// matches; a group matches if all of its conditions hold.
//
//	Ruleset   := [ Group, … ]
//	Group     := [ Condition, … ]
//	Condition := {
//	  "target":    "path" | "header" | "cookie" | "query",
//	  "name":      string,   required for header, cookie and query, forbidden for path
//	  "matchType": "regex" | "includes" | "startsWith" | "endsWith",   required for path
//	  "value":     string,   required with matchType, forbidden without it
//	  "negate":    boolean   default false
//	}
//
// A condition without matchType asks whether the thing is there at all. An
// empty ruleset and an empty group match nothing.
//
// # What a condition sees
//
// A condition holds if any value of its name matches. With "negate" the whole
// is inverted, so it also holds if there is no value at all.
//
//   - path: the path of the request target, percent-decoded once, as
//     net/http has it in Request.URL.Path. Nothing else is changed: "//" and
//     "/../" stay as they are, in every gate alike. The query is no part of
//     it, and an encoded "?" or "/" is an ordinary character of it. The empty
//     path of an absolute target is "/" (RFC 9110 §4.2.3).
//   - header: each field line is one value, not split at commas. Names are
//     compared without case (RFC 9110 §5.1). A line with an empty value is
//     there. Host is the host of the request (absent if empty);
//     Transfer-Encoding is what the server took from that field.
//   - cookie: each "name=value" pair of all Cookie lines, split at ";" and the
//     first "=", blanks around name and value removed. Quotes and escapes stay
//     (RFC 6265 §4.1.1 makes them part of the value). Names are compared with
//     case. What has no "=" or no name counts as absent.
//   - query: each pair between "&", split at the first "=", percent-decoded
//     with "+" as a blank. ";" is an ordinary character. A name without "="
//     has the empty value. A pair that cannot be decoded counts as absent.
//     Names are compared with case.
//
// Values are bytes. Where a pattern looks at bytes that are not valid UTF-8,
// each of them counts as U+FFFD.
//
// # Patterns
//
// A pattern may match anywhere in the value; use ^ and $ to bind it. Patterns
// are RE2 (package regexp), which takes time linear in the value. A pattern
// that RE2 does not know but ECMAScript does (look-around, back-references,
// \uXXXX, [^]) is run by a backtracking engine instead; [Set.Backtracking]
// lists these, and their size is limited ([MaxBacktrackPattern],
// [MaxBacktrackNesting]). Its work on one request is limited to about
// [BacktrackLimit] (at most twice that), its input to [MaxBacktrackInput]
// bytes. Where a limit ends it, the [Purpose] decides whether the condition
// holds, "negate" notwithstanding: nobody leaves the scope of a gate by being
// slow to match.
//
// Patterns written for JavaScript mean the same in RE2 but for these cases:
//
//   - \s knows ASCII blanks only and no \v, and . does not stop at \r, U+2028
//     and U+2029;
//   - \a, \A, \z, \C, \Q and \pX have their RE2 meaning, where JavaScript
//     without flags takes the letter;
//   - (?i) and [[:alpha:]] are understood;
//   - a character outside the basic plane is one character, not two.
//
// # State
//
// A [Set] is immutable. A [File] holds the Set of the last content of a file
// that could be read and parsed; that Set is authoritative for the gate. It may
// be stale for the time that change notification takes (well under a second),
// or until [File.Reload] where the system gives no notification. On failure
// the Set before stays in force, and the failure is logged and counted.
package rules
