// YuniKorn's scheduler for Kubernetes, without its web server: that listens on port 9080 of every address of the
// machine, whatever is said.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/apache/yunikorn-core/pkg/entrypoint"
	corelog "github.com/apache/yunikorn-core/pkg/log"
	"github.com/apache/yunikorn-k8shim/pkg/client"
	"github.com/apache/yunikorn-k8shim/pkg/conf"
	"github.com/apache/yunikorn-k8shim/pkg/log"
	"github.com/apache/yunikorn-k8shim/pkg/plugin/predicates"
	"github.com/apache/yunikorn-k8shim/pkg/shim"
	"go.uber.org/zap"
)

func main() {
	predicates.EnableOptionalKubernetesFeatureGates()
	settings, err := client.LoadBootstrapConfigMaps()
	must(err)
	must(conf.UpdateConfigMaps(settings, true))
	corelog.InitializeLogger(log.RootLogger(), log.GetZapConfigs())
	core := entrypoint.StartAllServicesWithParams(false, false)
	scheduler := shim.NewShimScheduler(core.RMProxy, conf.GetSchedulerConf(), settings)
	must(scheduler.Run())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
	scheduler.Stop()
}

func must(err error) {
	if err != nil {
		log.Log(log.Shim).Fatal("cannot start", zap.Error(err))
	}
}
