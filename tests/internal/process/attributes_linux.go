package process

import "syscall"

// attributes lets the kernel end the process if the test's dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
