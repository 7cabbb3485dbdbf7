package redis

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// DefaultPrefix is the prefix of connect-qos.
const DefaultPrefix = "qos:"

// Store implements [qos.ClusterStore]. Several limiters may share one.
type Store struct {
	client redis.UniversalClient
	prefix string
}

var _ qos.ClusterStore = (*Store)(nil)

// New makes a store. The client is left to its owner: close it after the limiters.
//
// prefix stands before every key; [DefaultPrefix] is that of connect-qos, and it may be
// empty. Braces in it must be a hash tag, such as "{qos}:", which keeps all keys on one
// node of a Redis Cluster.
func New(client redis.UniversalClient, prefix string) (*Store, error) {
	if strings.ContainsAny(prefix, "{}") && !tagged(prefix) {
		return nil, fmt.Errorf("redis: key prefix %.64q has braces that are no hash tag", prefix)
	}
	return &Store{client, prefix}, nil
}

// Open makes a client that suits a store, for redis://user:password@host:port/db, or
// rediss:// for TLS, or unix://. With a parameter addr=host:port, once or more, it
// is a client of a Redis Cluster. It does not connect yet. Errors do not repeat the
// address, which may have a password.
//
// It switches off the log that the client library writes to standard error, for the
// whole process: what goes wrong is returned, and told to OnError.
func Open(address string) (redis.UniversalClient, error) {
	logging.Disable()
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("redis: the address is not a URL")
	}
	// Retries are the limiter's: it knows what has arrived.
	const noRetries, oneDial = -1, 1
	hitless := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if u.Query().Has("addr") {
		o, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, errors.New("redis: the address is not like redis://user:password@host:port?addr=host:port")
		}
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = noRetries, oneDial, true, hitless
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, errors.New("redis: the address is not like redis://user:password@host:port/db")
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = noRetries, oneDial, true, hitless
	return redis.NewClient(o), nil
}

// The kinds of key.
const (
	ipKind     = "ip"
	subnetKind = "subnet"
	hostKind   = "host"
	totalKind  = "total"
	uniqueKind = "unique"
)

func (s *Store) key(kind string, window int64) string {
	return s.prefix + kind + ":w" + strconv.FormatInt(window, 10)
}

// markKey is the mark of a part of a batch that was added to a key. It is in the same
// slot of a Redis Cluster.
func markKey(key, batch string, part int) string {
	if !tagged(key) {
		key = "{" + key + "}"
	}
	return key + ":" + batch + "." + strconv.Itoa(part)
}

// tagged reports whether only a part of a key decides its slot: what is between the
// first { and the next }, if there is anything.
func tagged(key string) bool {
	_, rest, _ := strings.Cut(key, "{")
	return strings.IndexByte(rest, '}') > 0
}
