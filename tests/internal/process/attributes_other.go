//go:build !linux

package process

import "syscall"

// attributes are none: a process may outlive a test that is killed.
func attributes() *syscall.SysProcAttr { return nil }
