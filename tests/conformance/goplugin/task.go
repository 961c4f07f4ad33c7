package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/flyteorg/flyte/flyteidl/gen/pb-go/flyteidl/admin"
	"github.com/flyteorg/flyte/flyteidl/gen/pb-go/flyteidl/core"
	pluginscore "github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/core"
	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/encoding"
	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/flytek8s"
	"github.com/flyteorg/flyte/flytestdlib/contextutils"
)

// Task is one line of input.
type Task struct {
	Template     json.RawMessage   `json:"template"`
	Metadata     json.RawMessage   `json:"metadata"`
	OutputPrefix string            `json:"output_prefix"`
	Settings     map[string]any    `json:"settings"`
	PodTemplates []*v1.PodTemplate `json:"pod_templates"`
}

// Ours is what stands beside Flyte's own settings, under `kfpytorch`: what propeller is told in other places.
type Ours struct {
	// TaskResources are admin's; propeller gets them with the execution.
	TaskResources struct {
		Defaults v1.ResourceList `json:"defaults"`
		Limits   v1.ResourceList `json:"limits"`
	} `json:"task-resources"`
	// PodTemplateNamespace is propeller's POD_NAMESPACE, where it looks for what a task's namespace lacks.
	PodTemplateNamespace string `json:"pod-template-namespace"`
}

// As propeller: encoding.FixedLengthUniqueIDForParts is asked for names of at most this length.
const nameLength = 50

func (p *Peer) manifest(ctx context.Context, line []byte) (Answer, error) {
	execution, metadata, err := p.prepare(ctx, line)
	if err != nil {
		return Answer{}, err
	}
	p.client.created = nil
	transition, err := p.manager.Handle(workflowContext(ctx, metadata), execution)
	if err != nil {
		return Answer{}, problem("SystemError", err)
	}
	if failure := transition.Info().Err(); failure != nil {
		return Answer{}, &Problem{Code: failure.GetCode(), Message: failure.GetMessage()}
	}
	return p.created()
}

// prepare puts the line's settings and PodTemplates in force, and makes of the rest what a plugin is called with.
func (p *Peer) prepare(ctx context.Context, line []byte) (*execution, *admin.TaskExecutionMetadata, error) {
	task, template, metadata, err := readTask(line)
	if err != nil {
		return nil, nil, problem("BadInput", err)
	}
	ours, err := takeOurs(task.Settings)
	if err != nil {
		return nil, nil, problem("BadSettings", err)
	}
	if err := p.settings.use(ctx, task.Settings); err != nil {
		return nil, nil, problem("BadSettings", err)
	}
	flytek8s.DefaultPodTemplateStore = storeOf(task.PodTemplates, ours.PodTemplateNamespace)
	execution, err := newExecution(template, metadata, task.OutputPrefix, ours)
	if err != nil {
		return nil, nil, problem("BadWorkflow", err)
	}
	return execution, metadata, nil
}

// takeOurs leaves Flyte's own section, which is read strictly.
func takeOurs(settings map[string]any) (*Ours, error) {
	ours := &Ours{PodTemplateNamespace: "flyte"}
	said, known := settings["kfpytorch"]
	if !known {
		return ours, nil
	}
	delete(settings, "kfpytorch")
	text, err := json.Marshal(said)
	if err != nil {
		return nil, err
	}
	return ours, json.Unmarshal(text, ours)
}

// created is what the client was told to create, with the kind that a client adds on the wire.
func (p *Peer) created() (Answer, error) {
	job := p.client.created
	if job == nil {
		return Answer{}, fmt.Errorf("nothing was created")
	}
	kind, err := apiutil.GVKForObject(job, scheme.Scheme)
	job.GetObjectKind().SetGroupVersionKind(kind)
	return Answer{Manifest: job}, err
}

func readTask(line []byte) (*Task, *core.TaskTemplate, *admin.TaskExecutionMetadata, error) {
	task, template, metadata := &Task{}, &core.TaskTemplate{}, &admin.TaskExecutionMetadata{}
	if err := json.Unmarshal(line, task); err != nil {
		return nil, nil, nil, err
	}
	read := protojson.UnmarshalOptions{DiscardUnknown: true}
	if err := read.Unmarshal(task.Template, template); err != nil {
		return nil, nil, nil, fmt.Errorf("template: %w", err)
	}
	if err := read.Unmarshal(task.Metadata, metadata); err != nil {
		return nil, nil, nil, fmt.Errorf("metadata: %w", err)
	}
	return task, template, metadata, nil
}

func storeOf(templates []*v1.PodTemplate, fallback string) flytek8s.PodTemplateStore {
	store := flytek8s.NewPodTemplateStore()
	store.SetDefaultNamespace(fallback)
	for _, template := range templates {
		store.Store(template)
	}
	return store
}

// workflowContext carries the workflow's id, from which propeller makes an environment variable. The label has
// the name only.
func workflowContext(ctx context.Context, metadata *admin.TaskExecutionMetadata) context.Context {
	name, known := metadata.GetLabels()["workflow-name"]
	if !known {
		return ctx
	}
	id := metadata.GetTaskExecutionId().GetNodeExecutionId().GetExecutionId()
	return contextutils.WithWorkflowID(ctx, fmt.Sprintf("%s:%s:%s", id.GetProject(), id.GetDomain(), name))
}

func newExecution(
	template *core.TaskTemplate, metadata *admin.TaskExecutionMetadata, outputPrefix string, ours *Ours,
) (*execution, error) {
	id := metadata.GetTaskExecutionId()
	attempt := strconv.Itoa(int(id.GetRetryAttempt()))
	node := id.GetNodeExecutionId()
	parts := []string{node.GetExecutionId().GetName(), node.GetNodeId(), attempt}
	name, err := encoding.FixedLengthUniqueIDForParts(nameLength, parts)
	if err != nil {
		return nil, err
	}
	// A workflow is compiled with the resources of its nodes; one that cannot be is never run.
	resources, err := flytek8s.ToK8sResourceRequirements(metadata.GetOverrides().GetResources())
	if err != nil {
		return nil, err
	}
	return &execution{
		template: template,
		metadata: &executionMetadata{
			metadata: metadata, name: name, overrides: overrides{metadata.GetOverrides(), resources},
			platform: platformResources(ours),
		},
		outputs: outputs(outputPrefix, name),
	}, nil
}

// platformResources always hold all four names, as propeller's do: zero when nothing is said.
func platformResources(said *Ours) *v1.ResourceRequirements {
	filled := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	names := []v1.ResourceName{
		v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, flytek8s.ResourceNvidiaGPU,
	}
	for _, name := range names {
		filled.Requests[name] = said.TaskResources.Defaults[name]
		filled.Limits[name] = said.TaskResources.Limits[name]
	}
	return &filled
}

var _ pluginscore.TaskExecutionContext = &execution{}
