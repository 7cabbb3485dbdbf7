package pgstore

import (
	"encoding/json"

	"github.com/ccnq/ccnq/pkg/wire"
)

// sampleLines are samples as they stand in the tables: one line of JSON each.
func sampleLines(samples []wire.DenialSample) []string {
	lines := make([]string, 0, len(samples)) // never nil, which would be NULL
	var room [256]byte
	for _, s := range samples {
		if line, ok := appendSample(room[:0], s); ok {
			lines = append(lines, string(line))
		}
	}
	return lines
}

// appendSample appends what encoding/json makes of a sample, in a fraction of
// the time. There is none of a time beyond year 9999.
func appendSample(buf []byte, s wire.DenialSample) ([]byte, bool) {
	buf = append(buf, `{"at":"`...)
	buf, err := s.At.AppendText(buf)
	if err != nil {
		return nil, false
	}
	buf = appendString(append(buf, `","reason":`...), string(s.Reason))
	if s.Path != "" {
		buf = appendString(append(buf, `,"path":`...), s.Path)
	}
	if s.Edge != "" {
		buf = appendString(append(buf, `,"edge":`...), s.Edge)
	}
	return append(buf, '}'), true
}

// appendString appends a string of JSON.
func appendString(buf []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(text(s)) // strings have no errors
			return append(buf, quoted...)
		}
	}
	buf = append(buf, '"')
	buf = append(buf, s...)
	return append(buf, '"')
}

// parseSamples is the inverse. A sample that somebody has edited into nonsense
// is left out.
func parseSamples(lines []string) []wire.DenialSample {
	var samples []wire.DenialSample
	for _, line := range lines {
		var s wire.DenialSample
		if json.Unmarshal([]byte(line), &s) == nil {
			samples = append(samples, s)
		}
	}
	return samples
}
