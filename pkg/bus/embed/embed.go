// Package embed runs a NATS server inside the process: for the standalone
// program, and for tests. Its JetStream state, when a folder is given, is the
// only thing that outlives the process.
package embed

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startTimeout bounds the wait for a server to accept connections.
const startTimeout = 10 * time.Second

// Options say how the server runs.
type Options struct {
	// Host and Port are where clients connect; Port 0 opens no socket, -1
	// takes any free port.
	Host string
	Port int
	// Token is what clients over the socket must present; empty means none.
	Token string
	// StoreDir holds JetStream's files; empty switches JetStream off.
	StoreDir string
	// Name is the server's name; empty makes one up.
	Name string
}

// Server is a running NATS server.
type Server struct {
	ns *server.Server
}

// Start runs a server and returns once it accepts connections.
func Start(opts Options) (*Server, error) {
	ns, err := server.NewServer(&server.Options{
		ServerName:    opts.Name,
		Host:          opts.Host,
		Port:          opts.Port,
		DontListen:    opts.Port == 0,
		Authorization: opts.Token,
		JetStream:     opts.StoreDir != "",
		StoreDir:      opts.StoreDir,
		NoSigs:        true,
		NoLog:         true,
		PingInterval:  5 * time.Second,
		MaxPingsOut:   2,
	})
	if err != nil {
		return nil, fmt.Errorf("embedded NATS: %w", err)
	}
	ns.Start()
	if !ns.ReadyForConnections(startTimeout) {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, errors.New("embedded NATS does not accept connections: is its port taken?")
	}
	return &Server{ns: ns}, nil
}

// ClientURL is the address for clients over the socket.
func (s *Server) ClientURL() string { return s.ns.ClientURL() }

// InProcess dials the server without a socket; see
// github.com/nats-io/nats.go.InProcessServer.
func (s *Server) InProcess() nats.InProcessConnProvider { return s.ns }

// Stop ends the server and returns when it is gone. It may be called twice.
func (s *Server) Stop() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}
