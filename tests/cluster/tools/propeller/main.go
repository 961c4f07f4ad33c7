// FlytePropeller with the plugins that training needs, and `propeller compile`: what flyteadmin does with a workflow
// before propeller sees it.
//
// Upstream's own main links every plugin, and the module of one of them cannot be had from the module proxy.
package main

import (
	"fmt"
	"os"

	_ "github.com/flyteorg/flyte/flyteplugins/go/tasks/plugins/k8s/kfoperators/pytorch"
	_ "github.com/flyteorg/flyte/flyteplugins/go/tasks/plugins/k8s/pod"
	"github.com/flyteorg/flyte/flytepropeller/cmd/controller/cmd"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != "compile" {
		cmd.Execute()
		return
	}
	if err := compile(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
