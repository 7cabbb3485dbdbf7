package qos

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewNamesTheWrongOption(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		options Options
		message string
		compat  bool // an error there too
	}{
		{"mask", Options{SubnetMaskBits: new(31)}, "qos: SubnetMaskBits 31 is not in 20..30", true},
		{"lag", Options{MinLag: new(time.Second)}, "qos: MinLag 1000 ms is not less than MaxLag 300 ms", true},
		{"host rate", Options{MaxHostRate: new(10.0)}, "qos: MinHostRate 20 is greater than MaxHostRate 10", true},
		{"address rate", Options{MinIPRate: 1}, "qos: MinIPRate 1 is greater than MaxIPRate 0", true},
		{"subnet rate", Options{MinSubnetRate: 1}, "qos: MinSubnetRate 1 is greater than MaxSubnetRate 0", true},
		{"history size", Options{HistorySize: new(0)}, "qos: HistorySize 0 is not a positive number", true},
		{"not a number", Options{MinIPRate: math.NaN()}, "qos: MinIPRate NaN is not a finite number", true},
		{"infinite", Options{MaxHostRate: new(math.Inf(1))}, "qos: MaxHostRate +Inf is not a finite number", true},
		{"ratio", Options{MaxHostRatio: math.NaN()}, "qos: MaxHostRatio NaN is not a finite number", true},
		{"gate", Options{MinSubnetUniqueIPs: new(0.0)}, "qos: MinSubnetUniqueIPs 0 is not a positive number", true},
		{"gate not a number", Options{MinSubnetUniqueIPs: new(math.NaN())}, "qos: MinSubnetUniqueIPs NaN is not a positive number", true},
		{"hops", Options{TrustedHops: 101}, "qos: TrustedHops 101 is not in 0..100", true},
		{"negative rate", Options{MinHostRate: new(-1.0)}, "qos: MinHostRate -1 is negative", false},
		{"negative override", Options{MaxIPRateHostViolation: -1}, "qos: MaxIPRateHostViolation -1 is negative", false},
		{"max age", Options{MaxAge: new(time.Duration(0))}, "qos: MaxAge 0 ms is less than 1 ms", false},
		{"status", Options{ErrorStatusCode: new(100)}, "qos: ErrorStatusCode 100 is not in 200..999", false},
		{"delay", Options{ErrorResponseDelay: -time.Second}, "qos: ErrorResponseDelay -1s is negative", false},
		{"address", Options{IPWhitelist: []string{"192.0.2.0/24"}}, `qos: IPWhitelist "192.0.2.0/24" is not an address`, false},
		{"subnet", Options{SubnetWhitelist: []string{"192.0.2"}}, `qos: SubnetWhitelist "192.0.2" is not an address`, false},
		{"other length", Options{SubnetWhitelist: []string{"192.0.2.0/25"}}, `qos: SubnetWhitelist "192.0.2.0/25" is not a /24`, false},
		{"IPv6 length", Options{SubnetWhitelist: []string{"2001:db8::/48"}}, `qos: SubnetWhitelist "2001:db8::/48" is not a /64`, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.options.Lag = &world{}
			_, err := New(test.options)
			require.EqualError(t, err, test.message)
			var wrong *OptionError
			require.ErrorAs(t, err, &wrong)

			test.options.Compat = true
			_, err = New(test.options)
			require.Equal(t, test.compat, err != nil, "with Compat: %v", err)
		})
	}
}

func TestRequiredIPs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		gate     *float64
		maskBits int
		compat   bool
		want     int
	}{
		{nil, 24, false, 128},
		{nil, 24, true, 1},
		{new(0.5), 24, true, 128},
		{new(0.5), 20, false, 2048},
		{new(0.3), 30, false, 2}, // 1.2, rounded up
		{new(0.0001), 30, false, 1},
		{new(1.0), 24, false, 1},
		{new(1.4), 24, false, 1},
		{new(1.5), 24, false, 2},
		{new(300.0), 24, false, 300},
		{new(1e300), 24, false, math.MaxInt32},
	}
	for _, test := range tests {
		options := Options{MinSubnetUniqueIPs: test.gate, SubnetMaskBits: &test.maskBits, Compat: test.compat}
		s := options.settings()
		require.NoError(t, s.validate())
		require.Equal(t, test.want, RequiredIPs(s.uniqueIPs, s.maskBits), "%+v", test)
	}
}

func TestWhitelistsAreNormalised(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter(t, Options{
		MinHostRate: new(0.1), MaxHostRate: new(0.1), MinIPRate: 0.1, MaxIPRate: 0.1, MinSubnetRate: 0.1, MaxSubnetRate: 0.1,
		MinSubnetUniqueIPs: new(1.0),
		HostWhitelist:      []string{"WWW.Up.example:80"},
		IPWhitelist:        []string{"::ffff:192.0.2.1"},
		SubnetWhitelist:    []string{"198.51.100.7", "203.0.113.0/24", "2001:db8::/64"},
	})
	for range 3 {
		require.False(t, l.IsBadHost("up.example", true))
		require.False(t, l.IsBadIP("192.0.2.1", true))
		require.False(t, l.IsBadSubnet("198.51.100.0", true))
		require.False(t, l.IsBadSubnet("203.0.113.255", true))
		require.False(t, l.IsBadSubnet("2001:db8::1", true))
	}
	require.Empty(t, l.hosts.keys())
	require.Empty(t, l.ips.keys())
	require.Empty(t, l.subnets.keys())
	// The default, localhost, is replaced.
	require.False(t, l.IsBadHost("localhost", true))
	require.True(t, l.IsBadHost("localhost", true))
}
