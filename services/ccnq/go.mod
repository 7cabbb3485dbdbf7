module github.com/ccnq/ccnq/services/ccnq

go 1.26.0

require (
	github.com/ccnq/ccnq/db v0.0.0
	github.com/ccnq/ccnq/pkg v0.0.0
	github.com/ccnq/ccnq/services/edge v0.0.0
	github.com/ccnq/ccnq/services/queue-coordinator v0.0.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)

replace github.com/ccnq/ccnq/db => ../../db

replace github.com/ccnq/ccnq/pkg => ../../pkg

replace github.com/ccnq/ccnq/services/edge => ../edge

replace github.com/ccnq/ccnq/services/queue-coordinator => ../queue-coordinator
