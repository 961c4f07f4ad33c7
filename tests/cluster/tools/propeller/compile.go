package main

import (
	"encoding/json"
	"io"

	"github.com/flyteorg/flyte/flyteidl/gen/pb-go/flyteidl/admin"
	"github.com/flyteorg/flyte/flyteidl/gen/pb-go/flyteidl/core"
	"github.com/flyteorg/flyte/flytepropeller/pkg/apis/flyteworkflow/v1alpha1"
	"github.com/flyteorg/flyte/flytepropeller/pkg/compiler"
	"github.com/flyteorg/flyte/flytepropeller/pkg/compiler/common"
	"github.com/flyteorg/flyte/flytepropeller/pkg/compiler/transformers/k8s"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What propeller waits for before it lets an object go.
const finalizer = "flyte.org/finalizer"

// Execution is one run of one workflow, as somebody asks for it; messages are in their binary form.
type Execution struct {
	Closure     []byte            `json:"closure"` // flyteidl.core.WorkflowClosure
	Inputs      []byte            `json:"inputs"`  // flyteidl.core.LiteralMap
	Project     string            `json:"project"`
	Domain      string            `json:"domain"`
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	OutputData  string            `json:"output_data"` // where tasks write what is too large for a literal
	Account     string            `json:"service_account"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// compile reads an Execution and writes the FlyteWorkflow that flyteadmin would have made of it.
func compile(from io.Reader, to io.Writer) error {
	var asked Execution
	if err := json.NewDecoder(from).Decode(&asked); err != nil {
		return err
	}
	workflow, err := asked.workflow()
	if err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(workflow)
}

func (asked *Execution) workflow() (*v1alpha1.FlyteWorkflow, error) {
	closure, inputs := &core.WorkflowClosure{}, &core.LiteralMap{}
	if err := proto.Unmarshal(asked.Closure, closure); err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(asked.Inputs, inputs); err != nil {
		return nil, err
	}
	tasks := make([]*core.CompiledTask, 0, len(closure.GetTasks()))
	for _, template := range closure.GetTasks() {
		task, err := compiler.CompileTask(template)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	compiled, err := compiler.CompileWorkflow(closure.GetWorkflow(), nil, tasks, []common.InterfaceProvider{})
	if err != nil {
		return nil, err
	}
	id := &core.WorkflowExecutionIdentifier{Project: asked.Project, Domain: asked.Domain, Name: asked.Name}
	workflow, err := k8s.BuildFlyteWorkflow(compiled, inputs, id, asked.Namespace)
	if err != nil {
		return nil, err
	}
	asked.complete(workflow, id)
	return workflow, nil
}

// complete adds what only whoever starts an execution knows.
func (asked *Execution) complete(workflow *v1alpha1.FlyteWorkflow, id *core.WorkflowExecutionIdentifier) {
	now := metav1.Now()
	// The compiler writes it in lower case, which only typed clients mend.
	workflow.Kind = "FlyteWorkflow"
	workflow.Finalizers = []string{finalizer}
	workflow.ExecutionID = v1alpha1.WorkflowExecutionIdentifier{WorkflowExecutionIdentifier: id}
	workflow.WorkflowMeta = &v1alpha1.WorkflowMeta{EventVersion: v1alpha1.EventVersion2}
	workflow.AcceptedAt = &now
	workflow.ServiceAccountName = asked.Account
	workflow.SecurityContext = core.SecurityContext{RunAs: &core.Identity{K8SServiceAccount: asked.Account}}
	workflow.Annotations = asked.Annotations
	for key, value := range asked.Labels {
		workflow.Labels[key] = value
	}
	workflow.RawOutputDataConfig = v1alpha1.RawOutputDataConfig{
		RawOutputDataConfig: &admin.RawOutputDataConfig{OutputLocationPrefix: asked.OutputData},
	}
	workflow.ExecutionConfig = v1alpha1.ExecutionConfig{TaskPluginImpls: map[string]v1alpha1.TaskPluginOverride{}}
}
