module github.com/ccnq/ccnq/services/denylist

go 1.26.0

require (
	github.com/ccnq/ccnq/db v0.0.0
	github.com/ccnq/ccnq/pkg v0.0.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace github.com/ccnq/ccnq/db => ../../db

replace github.com/ccnq/ccnq/pkg => ../../pkg
