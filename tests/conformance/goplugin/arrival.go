package main

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/flyteorg/flyte/flyteidl/gen/pb-go/flyteidl/core"
	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/core/template"
	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/flytek8s"
	"github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/utils"
)

// arrival is a task's template as propeller's connector plugin sends it: a container's args rendered, or the whole
// pod spec.
func (p *Peer) arrival(ctx context.Context, line []byte) (Answer, error) {
	execution, metadata, err := p.prepare(ctx, line)
	if err != nil {
		return Answer{}, err
	}
	if err := arrive(workflowContext(ctx, metadata), execution); err != nil {
		return Answer{}, problem("NeverArrives", err)
	}
	text, err := protojson.Marshal(execution.template)
	return Answer{Template: json.RawMessage(text)}, err
}

func arrive(ctx context.Context, execution *execution) error {
	switch target := execution.template.GetTarget().(type) {
	case *core.TaskTemplate_Container:
		args, err := template.Render(ctx, target.Container.GetArgs(), template.Parameters{
			TaskExecMetadata: execution.metadata, Inputs: execution.InputReader(), OutputPath: execution.outputs,
			Task: execution,
		})
		target.Container.Args = args
		return err
	case *core.TaskTemplate_K8SPod:
		spec, _, _, err := flytek8s.ToK8sPodSpec(ctx, execution)
		if err != nil {
			return err
		}
		target.K8SPod.PodSpec, err = utils.MarshalObjToStruct(spec)
		return err
	}
	return nil
}
