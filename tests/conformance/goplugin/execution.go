package main

import (
	"context"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flyteorg/flyte/flyteidl/gen/pb-go/flyteidl/admin"
	"github.com/flyteorg/flyte/flyteidl/gen/pb-go/flyteidl/core"
	pluginscore "github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/core"
	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/encoding"
	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/io"
	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/ioutils"
	"github.com/flyteorg/flyte/flytestdlib/storage"
)

const ownerKind = "flyteworkflow"

// execution is what propeller hands to a plugin for one attempt; it reads its own template and empty inputs.
type execution struct {
	pluginscore.TaskExecutionContext
	template *core.TaskTemplate
	metadata *executionMetadata
	outputs  io.OutputWriter
}

func (e *execution) Read(context.Context) (*core.TaskTemplate, error) { return e.template, nil }
func (e *execution) Path(context.Context) (storage.DataReference, error) {
	return "s3://metadata/task_template.pb", nil
}
func (e *execution) TaskReader() pluginscore.TaskReader                       { return e }
func (e *execution) TaskExecutionMetadata() pluginscore.TaskExecutionMetadata { return e.metadata }
func (e *execution) OutputWriter() io.OutputWriter                            { return e.outputs }
func (e *execution) InputReader() io.InputReader                              { return inputs{e.outputs.GetOutputPrefixPath()} }
func (e *execution) DataStore() *storage.DataStore                            { return nil }
func (e *execution) PluginStateReader() pluginscore.PluginStateReader         { return noState{} }
func (e *execution) PluginStateWriter() pluginscore.PluginStateWriter         { return noState{} }

type noState struct{}

func (noState) GetStateVersion() uint8 { return 0 }
func (noState) Get(any) (uint8, error) { return 0, nil }
func (noState) Put(uint8, any) error   { return nil }
func (noState) Reset() error           { return nil }

// inputs lie beside the folders of the attempts.
type inputs struct{ outputPrefix storage.DataReference }

func (i inputs) GetInputPrefixPath() storage.DataReference {
	return i.outputPrefix[:max(0, strings.LastIndex(string(i.outputPrefix), "/"))]
}
func (i inputs) GetInputPath() storage.DataReference { return i.GetInputPrefixPath() + "/inputs.pb" }
func (inputs) Get(context.Context) (*core.LiteralMap, error) {
	return &core.LiteralMap{}, nil
}

func outputs(prefix, name string) io.OutputWriter {
	raw := ioutils.NewRawOutputPaths(context.Background(), storage.DataReference("s3://raw/"+path.Join("a0", name)))
	paths := ioutils.NewCheckpointRemoteFilePaths(
		context.Background(), storage.NewURLPathConstructor(), storage.DataReference(prefix), raw, "")
	return ioutils.NewBufferedOutputWriter(context.Background(), paths)
}

// executionMetadata is the connector's message, as the richer thing that a plugin inside propeller gets.
type executionMetadata struct {
	metadata  *admin.TaskExecutionMetadata
	name      string
	overrides overrides
	platform  *v1.ResourceRequirements
}

func (m *executionMetadata) GetGeneratedName() string { return m.name }
func (m *executionMetadata) GetUniqueNodeID() string  { return m.node().GetNodeId() }
func (m *executionMetadata) GetID() core.TaskExecutionIdentifier {
	return *m.metadata.GetTaskExecutionId()
}
func (m *executionMetadata) GetTaskExecutionID() pluginscore.TaskExecutionID { return m }
func (m *executionMetadata) GetNamespace() string                            { return m.metadata.GetNamespace() }
func (m *executionMetadata) GetOverrides() pluginscore.TaskOverrides         { return m.overrides }
func (m *executionMetadata) GetLabels() map[string]string                    { return m.metadata.GetLabels() }
func (m *executionMetadata) GetMaxAttempts() uint32                          { return 1 }
func (m *executionMetadata) GetAnnotations() map[string]string               { return m.metadata.GetAnnotations() }
func (m *executionMetadata) GetK8sServiceAccount() string                    { return m.metadata.GetK8SServiceAccount() }
func (m *executionMetadata) GetPlatformResources() *v1.ResourceRequirements  { return m.platform }
func (m *executionMetadata) GetInterruptibleFailureThreshold() int32         { return -1 }
func (m *executionMetadata) GetEnvironmentVariables() map[string]string {
	return m.metadata.GetEnvironmentVariables()
}
func (m *executionMetadata) GetConsoleURL() string { return "" }
func (m *executionMetadata) node() *core.NodeExecutionIdentifier {
	return m.metadata.GetTaskExecutionId().GetNodeExecutionId()
}

func (m *executionMetadata) GetGeneratedNameWith(_, maxLength int) (string, error) {
	return encoding.FixedLengthUniqueID(m.name, maxLength)
}

// IsInterruptible: the message has a field for it that propeller leaves empty, and a label.
func (m *executionMetadata) IsInterruptible() bool {
	return m.metadata.GetInterruptible() || m.metadata.GetLabels()["interruptible"] == "true"
}

func (m *executionMetadata) GetSecurityContext() core.SecurityContext {
	return core.SecurityContext{RunAs: m.metadata.GetIdentity()}
}

func (m *executionMetadata) GetOwnerID() types.NamespacedName {
	return types.NamespacedName{Namespace: m.GetNamespace(), Name: m.node().GetExecutionId().GetName()}
}

func (m *executionMetadata) GetOwnerReference() metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{
		APIVersion: "flyte.lyft.com/v1alpha1", Kind: ownerKind, Name: m.GetOwnerID().Name,
		UID: "00000000-0000-0000-0000-000000000000", Controller: &yes, BlockOwnerDeletion: &yes,
	}
}

// overrides are what with_overrides said of the node.
type overrides struct {
	*core.TaskNodeOverrides
	resources *v1.ResourceRequirements
}

func (o overrides) GetResources() *v1.ResourceRequirements { return o.resources }
func (o overrides) GetConfig() *v1.ConfigMap               { return nil }
