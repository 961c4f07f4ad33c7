package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery"
	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/core"
	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/k8s"
	_ "github.com/flyteorg/flyte/flyteplugins/go/tasks/plugins/k8s/kfoperators/pytorch"
	propeller "github.com/flyteorg/flyte/flytepropeller/pkg/controller/nodes/task/k8s"
	"github.com/flyteorg/flyte/flytestdlib/promutils"
)

// Peer is the registered plugin inside propeller's plugin manager.
type Peer struct {
	plugin   k8s.Plugin
	manager  *propeller.PluginManager
	client   *recorder
	settings *Settings
}

func newPeer(ctx context.Context) (*Peer, error) {
	settings, err := newSettings()
	if err != nil {
		return nil, err
	}
	for _, entry := range pluginmachinery.PluginRegistry().GetK8sPlugins() {
		if entry.ID == "pytorch" {
			client := &recorder{}
			manager, err := propeller.NewPluginManager(ctx, setup{client}, entry, propeller.NewResourceMonitorIndex(), nil)
			return &Peer{plugin: entry.Plugin, manager: manager, client: client, settings: settings}, err
		}
	}
	return nil, fmt.Errorf("the pytorch plugin is not registered")
}

// recorder is the only part of a cluster that building a job touches: what was last created.
type recorder struct {
	client.Client
	created client.Object
}

func (r *recorder) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	r.created = object
	return nil
}

// noInformers never has anything to tell.
type noInformers struct{ cache.Cache }

func (noInformers) GetInformer(ctx context.Context, _ client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (noInformers) WaitForCacheSync(ctx context.Context) bool {
	<-ctx.Done()
	return false
}

func (noInformers) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// setup is what propeller hands to a plugin when it starts.
type setup struct{ client client.Client }

func (s setup) GetClient() client.Client                { return s.client }
func (s setup) GetCache() cache.Cache                   { return noInformers{} }
func (s setup) KubeClient() core.KubeClient             { return s }
func (setup) EnqueueOwner() core.EnqueueOwner           { return func(types.NamespacedName) error { return nil } }
func (setup) OwnerKind() string                         { return ownerKind }
func (setup) MetricsScope() promutils.Scope             { return promutils.NewScope("goplugin") }
func (setup) SecretManager() core.SecretManager         { return nil }
func (setup) ResourceRegistrar() core.ResourceRegistrar { return nil }
