package main

import (
	"context"
	"encoding/json"
	"strings"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"

	"github.com/flyteorg/flyte/flyteidl/gen/pb-go/flyteidl/admin"
	"github.com/flyteorg/flyte/flyteidl/gen/pb-go/flyteidl/core"
)

// Phase is what the plugin makes of a job.
type Phase struct {
	Phase   string      `json:"phase"`
	Version uint32      `json:"version"`
	Reason  string      `json:"reason,omitempty"`
	Code    string      `json:"code,omitempty"`
	Kind    string      `json:"kind,omitempty"`
	Message string      `json:"message,omitempty"`
	Logs    []LogLink   `json:"logs,omitempty"`
	Custom  interface{} `json:"custom_info,omitempty"`
}

// LogLink is a link that people see.
type LogLink struct {
	Name string `json:"name"`
	URI  string `json:"uri"`
}

func (p *Peer) phase(ctx context.Context, line []byte) (Answer, error) {
	var input struct {
		Job kubeflow.PyTorchJob `json:"job"`
	}
	if err := json.Unmarshal(line, &input); err != nil {
		return Answer{}, problem("BadInput", err)
	}
	execution, err := newExecution(&core.TaskTemplate{}, &admin.TaskExecutionMetadata{
		TaskExecutionId: &core.TaskExecutionIdentifier{},
	}, "", &Ours{})
	if err != nil {
		return Answer{}, err
	}
	found, err := p.plugin.GetTaskPhase(ctx, execution, &input.Job)
	if err != nil {
		return Answer{}, problem("SystemError", err)
	}
	phase := &Phase{
		Phase: strings.TrimPrefix(found.Phase().String(), "Phase"), Version: found.Version(), Reason: found.Reason(),
	}
	if failure := found.Err(); failure != nil {
		phase.Code, phase.Kind, phase.Message = failure.GetCode(), failure.GetKind().String(), failure.GetMessage()
	}
	if info := found.Info(); info != nil {
		phase.Custom = info.CustomInfo.AsMap()
		for _, log := range info.Logs {
			phase.Logs = append(phase.Logs, LogLink{Name: log.GetName(), URI: log.GetUri()})
		}
	}
	return Answer{Phase: phase}, nil
}
