module github.com/ccnq/ccnq/services/edge

go 1.26.0

require (
	github.com/ccnq/ccnq/db v0.0.0
	github.com/ccnq/ccnq/pkg v0.0.0
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/maypok86/otter/v2 v2.4.0 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace github.com/ccnq/ccnq/db => ../../db

replace github.com/ccnq/ccnq/pkg => ../../pkg
