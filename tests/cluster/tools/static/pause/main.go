// Command pause does nothing until it is told to end, and buries the orphans of its namespace meanwhile: what holds a
// pod's network, or a whole machine of namespaces.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended, told := make(chan os.Signal, 16), make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	for {
		select {
		case <-told:
			return
		case <-ended:
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if pid <= 0 && err != syscall.EINTR {
					break
				}
			}
		}
	}
}
