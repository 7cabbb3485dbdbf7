package redis_test

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/qos/redis"
)

// A server that limits addresses together with others, Node instances of connect-qos
// among them.
func Example() {
	client, err := redis.Open("redis://redis.example.com:6379")
	if err != nil {
		slog.Error("cannot use Redis", "error", err)
		return
	}
	defer client.Close()
	store, err := redis.New(client, redis.DefaultPrefix)
	if err != nil {
		slog.Error("cannot use Redis", "error", err)
		return
	}
	limiter, err := qos.New(qos.Options{
		MinIPRate: 8,
		MaxIPRate: 15,
		Cluster: &qos.ClusterOptions{
			Store:         store,
			MaxIPRate:     50,
			MaxSubnetRate: 200,
			MaxHostRatio:  0.2,
			OnError:       func(err error) { slog.Warn("cluster sync", "error", err) },
		},
	})
	if err != nil {
		slog.Error("cannot limit", "error", err)
		return
	}
	defer limiter.Close()

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("Hello World!")) })
	server := &http.Server{Addr: ":8080", Handler: limiter.Middleware(hello), ReadHeaderTimeout: 10 * time.Second}
	slog.Error("cannot serve", "error", server.ListenAndServe())
}
