// Command probe asks the network of a pod: `probe -lookup NAME` ends well once the name resolves, `probe -dial HOST:PORT`
// once somebody listens. Debian's static busybox crashes when it looks up a name.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	name := flag.String("lookup", "", "a `name` that has to resolve")
	address := flag.String("dial", "", "an `address` that has to be listened at")
	patience := flag.Duration("patience", 2*time.Minute, "how long to try")
	flag.Parse()
	var last error
	for end := time.Now().Add(*patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if last = try(*name, *address); last == nil {
			return
		}
	}
	fmt.Fprintln(os.Stderr, last)
	os.Exit(1)
}

func try(name, address string) error {
	if name != "" {
		if _, err := net.LookupHost(name); err != nil {
			return err
		}
	}
	if address != "" {
		connection, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return err
		}
		return connection.Close()
	}
	return nil
}
