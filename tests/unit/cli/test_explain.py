"""Tests of ``kfpytorch explain`` with files and in batch mode."""

import base64
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from flyteidl.core.errors_pb2 import ErrorDocument

from backend_plugin.cli.explain import command

JOB = {
    "kind": "PyTorchJob",
    "metadata": {"name": "j", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}},
    "status": {
        "startTime": "2026-01-01T00:00:01Z",
        "conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}],
    },
}
POD = {
    "kind": "Pod",
    "metadata": {"name": "j-worker-0", "labels": {"training.kubeflow.org/replica-type": "worker"}},
    "status": {
        "phase": "Failed",
        "containerStatuses": [
            {"name": "pytorch", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
        ],
    },
}
DOCUMENT = ErrorDocument(
    error={"code": "c", "message": "ValueError: no data", "worker": "j-worker-0", "kind": 1}
)
OOM = """\
RETRYABLE_FAILED (OOMKilled, oom-host)
  worker-0 failed: OOMKilled, killed by SIGKILL (exit code 137) (oom-host)
  killed from outside, usually for lack of memory: request more, or load less per rank
  Flyte may try again
"""


def run(*args: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(command, args, input=stdin)


def test_job_and_pods_are_read_from_separate_files(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(JOB))
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [POD]}))
    assert run(str(tmp_path / "job.yaml"), str(tmp_path / "pods.yaml")).output == OOM


@pytest.mark.parametrize(
    "text",
    [yaml.safe_dump_all([JOB, POD]), json.dumps({"kind": "List", "items": [JOB, POD]})],
    ids=["yaml", "list"],
)
def test_objects_are_read_from_stdin(text: str) -> None:
    assert run("-", stdin=text).output == OOM


def test_unquoted_timestamps_are_read(tmp_path: Path) -> None:
    text = yaml.safe_dump(JOB).replace("'", "")
    result = run("-", "--now", "2026-01-01T00:01:02Z", stdin=text)
    assert result.output.startswith("RETRYABLE_FAILED (Failed, system-error)")


def test_error_file_is_read_from_a_path(tmp_path: Path) -> None:
    (tmp_path / "error-1.pb").write_bytes(DOCUMENT.SerializeToString())
    output = run("-", str(tmp_path / "error-1.pb"), stdin=yaml.safe_dump(JOB)).output
    worker = "  worker-0 failed: ValueError: no data (user-error)"
    assert output.splitlines()[:2] == ["RETRYABLE_FAILED (ValueError, user-error)", worker]


BAD = {
    "no file": ((), "", "no file is given; run: kubectl get"),
    "missing": (("nowhere.yaml",), "", "nowhere.yaml: No such file"),
    "no yaml": (("-",), "{", "-: is neither YAML nor JSON"),
    "no job": (("-",), "kind: Pod", "no file contains a PyTorchJob"),
    "two jobs": (("-",), yaml.safe_dump_all([JOB, JOB]), "more than one job"),
    "no time": (("-", "--now", "today"), "", "--now today is not an RFC 3339 time"),
}


@pytest.mark.parametrize(("args", "text", "error"), BAD.values(), ids=BAD)
def test_invalid_input_is_explained(args: tuple[str, ...], text: str, error: str) -> None:
    result = run(*args, stdin=text)
    assert result.exit_code != 0
    assert error in result.output.replace("\n", " ").replace("│", "").replace("  ", " ")


def batch(*requests: object) -> list[dict[str, object]]:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in requests]
    return [json.loads(line) for line in run("--batch", stdin="\n".join(lines)).output.splitlines()]


def test_batch_mode_returns_a_result_for_each_line() -> None:
    now = "2026-01-01T01:00:00Z"
    replies = batch(
        {"id": 1, "job": JOB, "pods": [POD], "now": now}, "nonsense", "[1]", {"id": "x", "job": 7, "now": 7}
    )
    assert replies[0] == {
        "id": 1,
        "phase": "RETRYABLE_FAILED",
        "reason": "OOMKilled",
        "message": "\n".join(line.strip() for line in OOM.splitlines()[1:3]),
        "cause": "oom-host",
        "retry": True,
        "logs": [],
    }
    assert [list(each) for each in replies[1:3]] == [["id", "problems"]] * 2
    assert (replies[3]["id"], replies[3]["phase"]) == ("x", "RETRYABLE_FAILED")


ERROR = {"message": "ValueError: no data", "worker": "j-worker-0"}
IN_BASE64 = base64.b64encode(DOCUMENT.SerializeToString()).decode()
FORMS = {
    "json": {"path": "p", "error": ERROR},
    "document": {"path": "p", "document": {"error": ERROR}},
    "base64": {"path": "p", "base64": IN_BASE64},
}


def test_batch_mode_uses_the_given_execution_and_settings() -> None:
    execution = {"project": "p", "domain": "d", "name": "f1"}
    request = {
        "job": {
            "metadata": {"name": "j", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
        },
        "settings": {
            "kfpytorch": {"logs": {"templates": [{"name": "l", "templateUris": ["x/{{ .executionName }}"]}]}}
        },
        "metadata": {"taskExecutionId": {"nodeExecutionId": {"executionId": execution}}},
        "template": {"type": "pytorch", "custom": {"kfpytorch": {"gang": {"queueTimeoutSeconds": 60}}}},
        "now": "2026-01-01T00:02:00Z",
    }
    waits, given_up = batch({**request, "template": None}, request)
    assert (waits["phase"], given_up["phase"]) == ("WAITING_FOR_RESOURCES", "RETRYABLE_FAILED")
    reply = batch({**request, "job": {**request["job"], "status": {}}, "now": "2026-01-01T00:00:01Z"})[0]
    assert reply["logs"] == [{"name": "l (all replicas)", "uri": "x/f1"}]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_error_files_are_read_in_each_form(form: object) -> None:
    (reply,) = batch({"id": 1, "job": JOB, "error_files": [form, 7]})
    assert str(reply["message"]).startswith("worker-0 failed: ValueError: no data (user-error)")
    (reply,) = batch({"id": 1, "job": JOB, "error_files": [{"base64": "!"}]})
    assert str(reply["message"]).startswith("a replica failed: Error: an error file that cannot be read")
