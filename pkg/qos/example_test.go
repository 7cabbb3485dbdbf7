package qos_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
)

// idle is a lag source for examples: nothing is ever late.
type idle struct{}

func (idle) Lag() time.Duration { return 0 }

// A limiter in front of a handler. Each address may ask 5 times within 10 seconds
// before it is judged, and 0.5 times a second from then on.
func ExampleLimiter_Middleware() {
	limiter, err := qos.New(qos.Options{
		MinIPRate: 0.5,
		MaxIPRate: 0.5,
		BeforeThrottle: func(_ *qos.Limiter, r *http.Request, reason qos.Reason) bool {
			fmt.Println("refusing", r.URL.Path, "because of", reason)
			return true // false would let the request through
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	server := httptest.NewServer(limiter.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "Hello World!")
	})))
	defer server.Close()

	for range 6 {
		response, err := http.Get(server.URL + "/page")
		if err != nil {
			fmt.Println(err)
			return
		}
		response.Body.Close()
		fmt.Println(response.Status)
	}
	// Output:
	// 200 OK
	// 200 OK
	// 200 OK
	// 200 OK
	// 200 OK
	// refusing /page because of badIp
	// 503 Service Unavailable
}

// Bad clients can be turned away before the TLS handshake, which costs more than
// most requests. Nothing is tracked there: the middleware does that.
func ExampleLimiter_IsBadHost() {
	limiter, err := qos.New(qos.Options{MinHostRate: new(0.3), MaxHostRate: new(0.3), Lag: idle{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if limiter.IsBadHost(hello.ServerName, false) || limiter.IsBadIP(hello.Conn.RemoteAddr().String(), false) {
				return nil, errors.New("too busy")
			}
			return nil, nil // go on with this configuration
		},
	}

	client, server := net.Pipe() // stands in for a connection
	defer client.Close()
	defer server.Close()
	hello := &tls.ClientHelloInfo{ServerName: "www.example.com", Conn: server}
	for range 4 {
		_, err := config.GetConfigForClient(hello)
		fmt.Println("handshake:", err)
		limiter.Decide(limiter.NewActor("example.com", netip.MustParseAddr("192.0.2.1")))
	}
	// Output:
	// handshake: <nil>
	// handshake: <nil>
	// handshake: <nil>
	// handshake: too busy
}

// A proxy that knows how soon its origin answers limits by that.
func ExampleOriginLag() {
	lag := qos.NewOriginLag()
	defer lag.Close()
	limiter, err := qos.New(qos.Options{
		Lag:    lag,
		MinLag: new(200 * time.Millisecond), // slower than usual by this much: begin
		MaxLag: new(2 * time.Second),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	lag.ObserveTTFB(80 * time.Millisecond) // for each answer
	fmt.Println(limiter.IsBadHost("example.com", false))
	// Output: false
}

// Errors name the option.
func ExampleOptionError() {
	_, err := qos.New(qos.Options{MaxHostRate: new(10.0)})
	var wrong *qos.OptionError
	if errors.As(err, &wrong) {
		fmt.Println(wrong.Option)
	}
	fmt.Println(err)
	// Output:
	// MinHostRate
	// qos: MinHostRate 20 is greater than MaxHostRate 10
}
