package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The goldens of the load-aware limits.
func init() {
	maps.Copy(goldens, map[string]Message{
		"qos_hits": QoSHits{
			Source: "WXJ3", Seq: 9,
			IPs:     QoSCounts{{"203.0.113.7", 12}, {"2001:db8::1", 1}},
			Subnets: QoSCounts{{"203.0.113.0", 12}, {"2001:db8::", 1}},
			Hosts:   QoSCounts{{"example.org", 12}, {"[2001:db8::5]", 1}},
			Total:   14, UniqueIPs: QoSCounts{{"203.0.113.0", 3}}, UniqueWindowsAgo: 1,
		},
		"qos_hits_min":  QoSHits{Source: "WXJ3", Seq: 1},
		"qos_lease":     QoSLease{Holder: "denylist-1-WXJ3"},
		"qos_lists":     QoSLists{Term: 1780000000000000042, Version: 3, IPs: []string{"203.0.113.7"}, Subnets: []string{"2001:db8::"}, Hosts: []string{"example.org"}},
		"qos_lists_min": QoSLists{Term: 1, Version: 1},
		"qos_mark":      QoSMark{Term: 1780000000000000042, Version: 3, Pieces: 1, Written: noon},
	})
}

func decodeQoSAs(like Message, data []byte) (Message, bool, error) {
	var m Message
	var err error
	switch like.(type) {
	case QoSHits:
		m, err = decode[QoSHits](data)
	case QoSLease:
		m, err = decode[QoSLease](data)
	case QoSLists:
		m, err = decode[QoSLists](data)
	case QoSMark:
		m, err = decode[QoSMark](data)
	default:
		return nil, false, nil
	}
	return m, true, err
}

func TestQoSMessagesAreRefused(t *testing.T) {
	t.Parallel()
	refused := func(_ Message, err error) string {
		require.ErrorIs(t, err, ErrInvalid)
		return err.Error()
	}
	hits := func(fields string) string {
		return refused(decode[QoSHits]([]byte(`{"source":"a","seq":1` + fields + `}`)))
	}
	for fields, want := range map[string]string{
		`,"seq":0`:                             "seq 0 is not in",
		`,"source":""`:                         "source has 0 bytes",
		`,"source":"` + long(65) + `"`:         "source has 65 bytes",
		`,"total":-1`:                          "total -1 is not in",
		`,"unique_windows_ago":-1`:             "unique_windows_ago -1",
		`,"ips":{"203.0.113.07":1}`:            `ips: key "203.0.113.07" is not an address`,
		`,"ips":{"::ffff:203.0.113.7":1}`:      "",
		`,"ips":{"fe80::1%eth0":1}`:            "is not an address in canonical text",
		`,"subnets":{"x":1}`:                   `subnets: key "x"`,
		`,"hosts":{"":1}`:                      "hosts: a key has 0 bytes",
		`,"hosts":{"` + long(257) + `":1}`:     "hosts: a key has 257 bytes",
		`,"hosts":{"a b":1}`:                   `hosts: key "a b" is not a host`,
		`,"hosts":{"a\u0062":1}`:               "plain keys",
		`,"hosts":{"a":0}`:                     "hosts: count 0",
		`,"hosts":{"a":-1}`:                    "plain keys",
		`,"hosts":{"a":1.5}`:                   "plain keys",
		`,"hosts":{"a":1e3}`:                   "plain keys",
		`,"hosts":{"a":9999999999999999}`:      "plain keys",
		`,"hosts":{"a":"1"}`:                   "plain keys",
		`,"hosts":["a"]`:                       "plain keys",
		`,"unique_ips":{"203.0.113.0":0}`:      "unique_ips: count 0",
		`,"ips":{"203.0.113.7":1099511627777}`: "ips: count 1099511627777",
	} {
		if want != "" {
			require.Contains(t, hits(fields), want, fields)
		}
	}
	for text, want := range map[string]string{
		`{"term":0,"version":1,"pieces":0}`:    "term 0 or version 1",
		`{"term":1,"version":1,"pieces":-1}`:   "pieces -1",
		`{"term":1,"version":1,"pieces":1025}`: "pieces 1025",
	} {
		require.Contains(t, refused(decode[QoSMark]([]byte(text))), want, text)
	}
	require.Contains(t, refused(decode[QoSLists]([]byte(`{"term":1,"version":0}`))), "version 0")
	require.Contains(t, refused(decode[QoSLists]([]byte(`{"term":1,"version":1,"subnets":["x"]}`))), "subnets")
	require.Contains(t, refused(decode[QoSLists]([]byte(`{"term":1,"version":1,"hosts":["<"]}`))), "hosts")
	require.Contains(t, refused(decode[QoSLease]([]byte(`{"holder":"`+long(MaxWords+1)+`"}`))), "is not up to 256 bytes")
}

func long(n int) string { return strings.Repeat("x", n) }

// TestQoSCountsHaveABound: a message may not make its reader reserve more than it
// holds.
func TestQoSCountsHaveABound(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range MaxQoSKeys + 1 {
		fmt.Fprintf(&b, `,"%d":1`, i)
	}
	var c QoSCounts
	require.ErrorContains(t, json.Unmarshal([]byte("{"+b.String()[1:]+"}"), &c), "more than 50000 keys")
	require.NoError(t, json.Unmarshal([]byte("{\n \"a\" : 1 ,\t\"b\":2 }"), &c))
	require.Equal(t, QoSCounts{{"a", 1}, {"b", 2}}, c)
	require.NoError(t, json.Unmarshal([]byte("{ }"), &c))
	require.Empty(t, c)
	require.NoError(t, json.Unmarshal([]byte("null"), &c))
}

func TestQoSMarkNewer(t *testing.T) {
	t.Parallel()
	mark := QoSMark{Term: 2, Version: 5}
	require.True(t, mark.Newer(QoSMark{}))
	require.True(t, mark.Newer(QoSMark{Term: 1, Version: 9}))
	require.True(t, mark.Newer(QoSMark{Term: 2, Version: 4}))
	require.False(t, mark.Newer(mark))
	require.False(t, mark.Newer(QoSMark{Term: 3, Version: 1}))
}

func FuzzDecodeQoSHits(f *testing.F)  { fuzzText[QoSHits](f) }
func FuzzDecodeQoSLease(f *testing.F) { fuzzText[QoSLease](f) }
func FuzzDecodeQoSLists(f *testing.F) { fuzzText[QoSLists](f) }
func FuzzDecodeQoSMark(f *testing.F)  { fuzzText[QoSMark](f) }

// BenchmarkQoSHits is what a message with as many addresses as fit costs its sender
// and its reader.
func BenchmarkQoSHits(b *testing.B) {
	hits := QoSHits{Source: "WXJ3", Seq: 1, Total: 1}
	for i := range 10_000 {
		hits.IPs = append(hits.IPs, QoSCount{fmt.Sprintf("203.%d.%d.7", i/256, i%256), int64(i + 1)})
	}
	data, err := json.Marshal(hits)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := json.Marshal(hits); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := Decode[QoSHits](data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
