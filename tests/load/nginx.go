package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/process"
)

// nginxConf is a cache as its manual shows it, in one process, so that all its
// CPU time is counted.
const nginxConf = `daemon off;
master_process off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr warn;
events { worker_connections 1024; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  keepalive_timeout 75s;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  proxy_cache_path %[1]s/cache levels=1:2 keys_zone=pages:10m max_size=1g use_temp_path=off;
  upstream origin { server %[3]s; keepalive 64; }
  server {
    listen 127.0.0.1:%[2]d backlog=1024;
    location / {
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_cache pages;
    }
  }
}
`

// startNginx starts nginx with a cache in front of an origin, at host and port.
// It returns nil where no nginx is installed.
func (b *bench) startNginx(ctx context.Context, c *closers, origin string) (*edge, error) {
	path := "/usr/sbin/nginx" // often not on the path of a user
	if found, err := exec.LookPath("nginx"); err == nil {
		path = found
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "nginx-")
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, ports[0], origin), 0o600); err != nil {
		return nil, err
	}
	p, err := process.Start("nginx", os.Environ(), path, "-p", dir, "-c", conf)
	if err != nil {
		return nil, err
	}
	c.add(p.Stop)
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	err = p.Await(ctx, "nginx listens", func() bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return &edge{Process: p, addr: addr}, err
}
