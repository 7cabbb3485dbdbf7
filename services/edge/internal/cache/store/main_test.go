package store

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		childWrites(dir)
		return
	}
	goleak.VerifyTestMain(m)
}
