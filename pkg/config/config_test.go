package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sample has one field of every kind.
type sample struct {
	Admin  Addr `env:"CCNQ_T_ADMIN_ADDR" envDefault:"127.0.0.1:9180" doc:"Where the admin listener is."`
	Port   int  `env:"CCNQ_PORT" envDefault:"3000" min:"1" max:"65535" doc:"Where the service listens."`
	Inner  inner
	Queue  queue  `section:"Queue"`
	Hidden string // no tag: not a variable
	secret string //nolint:unused // not exported: not a variable
}

type inner struct {
	Level    Level  `env:"CCNQ_LOG_LEVEL" envDefault:"info" doc:"What is logged."`
	Password string `env:"CCNQ_T_PASSWORD" secret:"true" doc:"The password."`
	Upstream URL    `env:"CCNQ_UPSTREAM_URL,required" doc:"The origin."`
}

type queue struct {
	Enabled bool    `env:"CCNQ_QUEUE_ENABLED" envDefault:"false" doc:"Switches the queue on."`
	Methods Methods `env:"CCNQ_QUEUE_METHODS" doc:"The methods in scope."`
	Mode    string  `env:"CCNQ_QUEUE_MODE" envDefault:"enforce" enum:"enforce,monitor" doc:"What a verdict does."`
	Proxies List    `env:"CCNQ_TRUSTED_PROXIES" doc:"The proxies | balancers."`
	Rules   string  `env:"CCNQ_QUEUE_RULES_FILE" doc:"The rules."`
	Token   Millis  `env:"CCNQ_T_TOKEN" secret:"true" doc:"A secret that can be malformed."`
	Wait    Millis  `env:"CCNQ_T_WAIT_MS" envDefault:"10000" max:"60000" doc:"How long to wait."`
	Rate    Number  `env:"CCNQ_T_RATE" envDefault:"0.5" doc:"How many a second."`
	Size    int64   `env:"CCNQ_T_SIZE_BYTES" envDefault:"1073741824" min:"0" doc:"How much to keep."`
}

func (s *sample) Validate() []string {
	if s.Queue.Enabled && s.Queue.Rules == "" {
		return []string{"CCNQ_QUEUE_RULES_FILE: is required with CCNQ_QUEUE_ENABLED"}
	}
	return nil
}

const upstream = "CCNQ_UPSTREAM_URL=http://origin:4000/base"

func load(t *testing.T, environ ...string) sample {
	t.Helper()
	var s sample
	require.NoError(t, Load(append([]string{upstream}, environ...), &s))
	return s
}

func problemsOf(t *testing.T, environ ...string) []string {
	t.Helper()
	var s sample
	err := Load(append([]string{upstream}, environ...), &s)
	var list *Error
	require.ErrorAs(t, err, &list)
	require.Equal(t, "configuration: "+strings.Join(list.Problems, "\n  "), err.Error())
	return list.Problems
}

func TestLoadDefaults(t *testing.T) {
	t.Parallel()
	s := load(t, "PATH=/bin", "CCNQ_PORT=", "ccnq_port=1")
	require.Equal(t, 3000, s.Port)
	require.Equal(t, Addr("127.0.0.1:9180"), s.Admin)
	require.Equal(t, slog.LevelInfo, s.Inner.Level.Level())
	require.Equal(t, "enforce", s.Queue.Mode)
	require.Equal(t, 10*time.Second, s.Queue.Wait.Duration())
	require.InDelta(t, 0.5, s.Queue.Rate.Float(), 0)
	require.Equal(t, int64(1<<30), s.Queue.Size)
	require.False(t, s.Queue.Enabled)
	require.Empty(t, s.Queue.Methods)
}

func TestLoadValues(t *testing.T) {
	t.Parallel()
	s := load(t,
		"CCNQ_PORT=1", "CCNQ_PORT=8080",
		"CCNQ_T_ADMIN_ADDR=off",
		"CCNQ_LOG_LEVEL=trace",
		"CCNQ_T_PASSWORD=a=b c",
		"CCNQ_QUEUE_ENABLED=1",
		"CCNQ_QUEUE_METHODS=get, POST,,",
		"CCNQ_QUEUE_MODE=monitor",
		"CCNQ_TRUSTED_PROXIES= 10.0.0.0/8 ,::1",
		"CCNQ_QUEUE_RULES_FILE=/etc/rules.json",
		"CCNQ_T_WAIT_MS=0",
		"CCNQ_T_RATE=40.25",
	)
	require.Equal(t, 8080, s.Port)
	require.True(t, s.Admin.Off())
	require.Equal(t, LevelTrace, s.Inner.Level)
	require.Equal(t, "a=b c", s.Inner.Password)
	require.Equal(t, "http://origin:4000/base", s.Inner.Upstream.String())
	require.True(t, s.Queue.Enabled)
	require.Equal(t, Methods{"GET", "POST"}, s.Queue.Methods)
	require.Equal(t, "monitor", s.Queue.Mode)
	require.Equal(t, List{"10.0.0.0/8", "::1"}, s.Queue.Proxies)
	require.Equal(t, "/etc/rules.json", s.Queue.Rules)
	require.Zero(t, s.Queue.Wait)
	require.InDelta(t, 40.25, s.Queue.Rate.Float(), 0)
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	for entry, want := range map[string]string{
		"CCNQ_LOG_LEVEL=INFO":                          `CCNQ_LOG_LEVEL: "INFO" is not one of trace, debug, info, warn, error, fatal`,
		"CCNQ_PORT=" + long:                            `CCNQ_PORT: "` + long[:80] + `"… is not a whole number from 1 to 65535`,
		"CCNQ_PORT=0":                                  `CCNQ_PORT: "0" is not a whole number from 1 to 65535`,
		"CCNQ_PORT=65536":                              `CCNQ_PORT: "65536" is not a whole number from 1 to 65535`,
		"CCNQ_PORT=99999999999999999999":               `CCNQ_PORT: "99999999999999999999" is not a whole number from 1 to 65535`,
		"CCNQ_PORT=\xff":                               `CCNQ_PORT: "\xff" is not UTF-8 text`,
		"CCNQ_QUEUE_ENABLED=yes":                       `CCNQ_QUEUE_ENABLED: "yes" is not true, false, 1 or 0`,
		"CCNQ_QUEUE_METHODS=GET,P OST":                 `CCNQ_QUEUE_METHODS: "GET,P OST" has "P OST" in it, which is not an HTTP method`,
		"CCNQ_QUEUE_MODE=Monitor":                      `CCNQ_QUEUE_MODE: "Monitor" is not one of enforce, monitor`,
		"CCNQ_T_ADMIN_ADDR=9180":                       `CCNQ_T_ADMIN_ADDR: "9180" is not host:port or off`,
		"CCNQ_T_ADMIN_ADDR=:http":                      `CCNQ_T_ADMIN_ADDR: ":http" has no port from 0 to 65535`,
		"CCNQ_T_RATE=-1":                               `CCNQ_T_RATE: "-1" is not a number of at least 0`,
		"CCNQ_T_RATE=.":                                `CCNQ_T_RATE: "." is not a number of at least 0`,
		"CCNQ_T_RATE=1e3":                              `CCNQ_T_RATE: "1e3" is not a number of at least 0`,
		"CCNQ_T_RATE=Inf":                              `CCNQ_T_RATE: "Inf" is not a number of at least 0`,
		"CCNQ_T_RATE=" + strings.Repeat("9", 33):       `CCNQ_T_RATE: "` + strings.Repeat("9", 33) + `" is not a number of at least 0`,
		"CCNQ_T_SIZE_BYTES=-1":                         `CCNQ_T_SIZE_BYTES: "-1" is not a whole number of at least 0`,
		"CCNQ_T_TOKEN=hunter2":                         `CCNQ_T_TOKEN: the value (not shown) is not whole milliseconds`,
		"CCNQ_T_TOKEN_FILE=hunter2":                    `CCNQ_T_TOKEN: CCNQ_T_TOKEN_FILE=(not shown): no such file or directory`,
		"CCNQ_T_WAIT_MS=-1":                            `CCNQ_T_WAIT_MS: "-1" is not whole milliseconds`,
		"CCNQ_T_WAIT_MS=1.5":                           `CCNQ_T_WAIT_MS: "1.5" is not whole milliseconds`,
		"CCNQ_T_WAIT_MS=10s":                           `CCNQ_T_WAIT_MS: "10s" is not whole milliseconds`,
		"CCNQ_T_WAIT_MS=60001":                         `CCNQ_T_WAIT_MS: "60001" is not whole milliseconds of at most 60000`,
		"CCNQ_T_WAIT_MS=315360000001":                  `CCNQ_T_WAIT_MS: "315360000001" is more milliseconds than ten years have`,
		"CCNQ_UPSTREAM_URL=":                           `CCNQ_UPSTREAM_URL: is required`,
		"CCNQ_UPSTREAM_URL=ftp://h":                    `CCNQ_UPSTREAM_URL: "ftp://h" does not begin with http:// or https://`,
		"CCNQ_UPSTREAM_URL=http://":                    `CCNQ_UPSTREAM_URL: "http://" has no host`,
		"CCNQ_UPSTREAM_URL=http://h#f":                 `CCNQ_UPSTREAM_URL: "http://h#f" has a fragment`,
		"CCNQ_UPSTREAM_URL=http://h:0":                 `CCNQ_UPSTREAM_URL: "http://h:0" has no port from 1 to 65535`,
		"CCNQ_UPSTREAM_URL=http://h?q":                 `CCNQ_UPSTREAM_URL: "http://h?q" has a query`,
		"CCNQ_UPSTREAM_URL=http:h":                     `CCNQ_UPSTREAM_URL: "http:h" has no host`,
		"CCNQ_UPSTREAM_URL=http://user:hunter2@origin": `CCNQ_UPSTREAM_URL: the value (not shown, it may hold a password) has a user in it`,
		"CCNQ_UPSTREAM_URL=http://[::1":                `CCNQ_UPSTREAM_URL: "http://[::1" is not a URL`,
		"CCNQ_QUEUE_ENABLED=true":                      `CCNQ_QUEUE_RULES_FILE: is required with CCNQ_QUEUE_ENABLED`,
		"CCNQ_QUEUE_ENABLE=true":                       `CCNQ_QUEUE_ENABLE: is not a known variable; did you mean CCNQ_QUEUE_ENABLED?`,
		"CCNQ_QEUE_PENDING_TIMEOUT=1":                  `CCNQ_QEUE_PENDING_TIMEOUT: is not a known variable; did you mean CCNQ_QUEUE_PENDING_TIMEOUT_MS?`,
		"CCNQ_QUEUE_RULES_FILE_FILE=/x":                `CCNQ_QUEUE_RULES_FILE_FILE: is not a known variable; did you mean CCNQ_QUEUE_RULES_FILE?`,
		"CCNQ_ANYTHING_ELSE_AT_ALL_THAT_IS_FAR_AWAY=1": `CCNQ_ANYTHING_ELSE_AT_ALL_THAT_IS_FAR_AWAY: is not a known variable`,
		"CCNQ_\n=1":                                    `"CCNQ_\n": is not a known variable`,
	} {
		require.Equal(t, []string{want}, problemsOf(t, entry), "%q", entry)
	}
}

func TestLoadReportsAllProblemsSorted(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		`CCNQ_PORT: "x" is not a whole number from 1 to 65535`,
		`CCNQ_QUEUE_RULES_FILE: is required with CCNQ_QUEUE_ENABLED`,
		`CCNQ_X: is not a known variable`,
	}, problemsOf(t, "CCNQ_X=1", "CCNQ_QUEUE_ENABLED=true", "CCNQ_PORT=x"))
}

func TestLoadDropsWhatFollowsFromAnotherProblem(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{`CCNQ_QUEUE_RULES_FILE: "\xff" is not UTF-8 text`},
		problemsOf(t, "CCNQ_QUEUE_ENABLED=true", "CCNQ_QUEUE_RULES_FILE=\xff"))
}

func TestLoadFillsSeveralStructs(t *testing.T) {
	t.Parallel()
	var a, b struct {
		Port int `env:"CCNQ_PORT" envDefault:"1" doc:"d"`
	}
	require.NoError(t, Load([]string{"CCNQ_PORT=7"}, &a, &b))
	require.Equal(t, []int{7, 7}, []int{a.Port, b.Port})
	err := Load([]string{"CCNQ_PORT=x"}, &a, &b)
	require.EqualError(t, err, `configuration: CCNQ_PORT: "x" is not a whole number`)
	require.Equal(t, 1, a.Port, "a wrong value leaves the default")
}

func TestLoadKnowsTheVariablesOfOtherServices(t *testing.T) {
	t.Parallel()
	s := load(t, "CCNQ_PG_HOST=db", "CCNQ_PG_PASSWORD_FILE=/not/read/here")
	require.Equal(t, 3000, s.Port)
}

func TestLoadIgnoresWhatPlatformsInject(t *testing.T) {
	t.Parallel()
	s := load(t,
		"CCNQ_SERVICE_HOST=10.0.0.1",
		"CCNQ_SERVICE_PORT=80",
		"CCNQ_SERVICE_PORT_HTTP=80",
		"CCNQ_PORT=tcp://10.0.0.1:80",
		"CCNQ_PORT_80_TCP=tcp://10.0.0.1:80",
		"CCNQ_PORT_80_TCP_ADDR=10.0.0.1",
		"CCNQ_PORT_80_TCP_PORT=80",
		"CCNQ_PORT_80_TCP_PROTO=tcp",
		"CCNQ_EDGE_SERVICE_HOST=10.0.0.2",
		"CCNQ_EDGE_PORT=udp://10.0.0.2:53",
		"CCNQ_EDGE_PORT_53_UDP=udp://10.0.0.2:53",
		"CCNQ_EDGE_PORT_53_UDP_PROTO=udp",
		"CCNQ_TEST_DATABASE_URL=postgres://",
	)
	require.Equal(t, 3000, s.Port)
	require.Len(t, problemsOf(t, "CCNQ_EDGE_PORT=80", "CCNQ_EDGE_PORT_53_UDP=x", "CCNQ_PORT=tcp:80"), 3)
}

func TestLoadFromFiles(t *testing.T) {
	t.Parallel()
	write := func(content string) string {
		path := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for content, want := range map[string]string{
		"pw": "pw", "pw\n": "pw", "pw\r\n": "pw", "pw\n\n": "pw\n", "p w ": "p w ",
	} {
		require.Equal(t, want, load(t, "CCNQ_T_PASSWORD_FILE="+write(content)).Inner.Password)
	}
	require.Equal(t, []string{"CCNQ_T_PASSWORD: is given twice, also as CCNQ_T_PASSWORD_FILE"},
		problemsOf(t, "CCNQ_T_PASSWORD=x", "CCNQ_T_PASSWORD_FILE="+write("y")))
	require.Equal(t, []string{"CCNQ_T_PASSWORD: CCNQ_T_PASSWORD_FILE=(not shown): the file is empty"},
		problemsOf(t, "CCNQ_T_PASSWORD_FILE="+write("\n")))
	require.Equal(t, []string{"CCNQ_T_PASSWORD: CCNQ_T_PASSWORD_FILE=(not shown): the file has more than 65536 bytes"},
		problemsOf(t, "CCNQ_T_PASSWORD_FILE="+write(strings.Repeat("x", 65537))))
	require.Equal(t, []string{`CCNQ_PORT: CCNQ_PORT_FILE="/no/such": no such file or directory`},
		problemsOf(t, "CCNQ_PORT_FILE=/no/such"))
}

func TestLoadRefusesFaultyStructs(t *testing.T) {
	t.Parallel()
	for name, dst := range map[string]any{
		"not a pointer": sample{},
		"not a struct":  new(int),
		"nil":           (*sample)(nil),
		"type": &struct {
			A float64 `env:"CCNQ_A"`
		}{},
		"default": &struct {
			A int `env:"CCNQ_A" envDefault:"x"`
		}{},
		"default out of bounds": &struct {
			A int `env:"CCNQ_A" envDefault:"0" min:"1"`
		}{},
		"bound": &struct {
			A int `env:"CCNQ_A" min:"x"`
		}{},
		"option": &struct {
			A int `env:"CCNQ_A,file"`
		}{},
	} {
		err := Load(nil, dst)
		require.Error(t, err, name)
		_, ofEnvironment := errors.AsType[*Error](err)
		require.False(t, ofEnvironment, name)
	}
}

func TestLevelNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"trace", "debug", "info", "warn", "error", "fatal"} {
		var l Level
		require.NoError(t, l.UnmarshalText([]byte(name)))
		require.Equal(t, strings.ToUpper(name), l.String())
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("CCNQ_PORT", "tcp://10.0.0.1:80", "hunter2-hunter2")
	f.Add("CCNQ_QUEUE_METHODS", "GET,\x00", "http://u:p@h")
	f.Add("CCNQ_T_TOKEN_FILE", "/dev/null", "12345678x")
	f.Add("CCNQ_UPSTREAM_URL", "http://[fe80::1%25en0]:1/?", "%%%%%%%%")
	f.Add("CCNQ_", "\n", "\xff\xff\xff\xff\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, name, value, secret string) {
		if strings.HasSuffix(name, fileSuffix) && strings.HasPrefix(value, "/dev/") {
			return // reading a terminal would block
		}
		var s sample
		err := Load([]string{name + "=" + value, "CCNQ_T_PASSWORD=" + secret, "CCNQ_T_TOKEN=" + secret}, &s)
		if err == nil {
			return
		}
		text := err.Error()
		if len(secret) >= 12 && !strings.Contains(name+value, secret) && strings.Contains(text, secret) {
			// The words of the message are fixed; a fuzzer may find those.
			if plain := (&Error{}).Error() + sampleWords(t); !strings.Contains(plain, secret) {
				t.Fatalf("%q shows the secret %q", text, secret)
			}
		}
	})
}

// sampleWords is the message with another secret.
func sampleWords(t *testing.T) string {
	t.Helper()
	var s sample
	err := Load([]string{"CCNQ_T_PASSWORD=x", "CCNQ_T_TOKEN=x"}, &s)
	require.Error(t, err)
	return err.Error()
}
