// Command ccnq runs everything in one process (ccnq run), and is the operators'
// command line.
package main

import (
	"context"
	"os"

	"github.com/ccnq/ccnq/services/ccnq/internal/cli"
)

// version is set by the linker.
var version = "unknown"

func main() {
	os.Exit(cli.Run(context.Background(), version, os.Args[1:], os.Stdout, os.Stderr))
}
