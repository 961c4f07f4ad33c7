// Goplugin asks Flyte's own Go plugin what it would do: JSON lines in, JSON lines out, one process.
//
//	goplugin           a task                       -> the PyTorchJob that propeller would create, or its refusal
//	goplugin --arrival a task                       -> its template as a connector would get it
//	goplugin --phase   a PyTorchJob with its status -> what propeller would believe
//
// Nothing of the plugin is written again here: propeller's plugin manager runs the registered plugin, against a
// client that keeps what it is told to create.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	controllerlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/flyteorg/flyte/flytestdlib/contextutils"
	"github.com/flyteorg/flyte/flytestdlib/logger"
	"github.com/flyteorg/flyte/flytestdlib/promutils/labeled"
)

// Problem is a refusal, or a failure of the plugin itself.
type Problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (p *Problem) Error() string { return p.Code + ": " + p.Message }

func problem(code string, err error) *Problem { return &Problem{Code: code, Message: err.Error()} }

// Answer is one line of output.
type Answer struct {
	ID       any      `json:"id"`
	Manifest any      `json:"manifest,omitempty"`
	Template any      `json:"template,omitempty"`
	Phase    *Phase   `json:"phase,omitempty"`
	Error    *Problem `json:"error,omitempty"`
}

// answerer does the work for one line of input.
type answerer func(ctx context.Context, line []byte) (Answer, error)

func main() {
	quiet()
	if err := answerAll(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answerAll(ctx context.Context, arguments []string) error {
	peer, err := newPeer(ctx)
	if err != nil {
		return err
	}
	defer peer.settings.forget()
	return run(os.Stdin, os.Stdout, peer.mode(arguments))
}

func quiet() {
	_ = logger.SetConfig(&logger.Config{Mute: true})
	controllerlog.SetLogger(logr.Discard())
	labeled.SetMetricKeys(contextutils.ProjectKey, contextutils.DomainKey, contextutils.WorkflowIDKey, contextutils.TaskIDKey)
}

func (p *Peer) mode(arguments []string) answerer {
	switch {
	case len(arguments) == 0:
		return p.manifest
	case arguments[0] == "--arrival":
		return p.arrival
	case arguments[0] == "--phase":
		return p.phase
	}
	return nil
}

func run(in io.Reader, out io.Writer, answer answerer) error {
	if answer == nil {
		return errors.New("unknown argument")
	}
	lines := bufio.NewReaderSize(in, 1<<20)
	answers := bufio.NewWriter(out)
	defer answers.Flush()
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			text, err := json.Marshal(safely(answer, line))
			if err != nil {
				return err
			}
			answers.Write(append(text, '\n'))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// safely answers whatever happens: what crashes the plugin is of interest too.
func safely(answer answerer, line []byte) (answered Answer) {
	var known struct{ ID any }
	_ = json.Unmarshal(line, &known)
	defer func() {
		if crash := recover(); crash != nil {
			answered = Answer{Error: problem("Panic", fmt.Errorf("%v\n%s", crash, debug.Stack()))}
		}
		answered.ID = known.ID
	}()
	answered, err := answer(context.Background(), line)
	var refusal *Problem
	switch {
	case errors.As(err, &refusal):
		answered.Error = refusal
	case err != nil:
		answered.Error = problem("Error", err)
	}
	return answered
}
