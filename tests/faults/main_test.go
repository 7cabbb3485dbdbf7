package faults

import (
	"testing"

	"github.com/ccnq/ccnq/tests/internal/process"
)

func TestMain(m *testing.M) { process.Main(m) }
