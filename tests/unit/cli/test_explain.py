"""Tests of ``kfpytorch explain`` with files of a platform and in batch mode."""

import base64
import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from flyteidl.core.errors_pb2 import ErrorDocument

from backend_plugin.cli.explain import command

NOW = "2026-01-01T03:00:00Z"


def a_job(name):
    made = "2026-01-01T00:00:00Z"
    return {
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": made},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}},
        "status": {"startTime": made, "conditions": [{"type": "Created", "status": "True"}]},
    }


FAILED = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}
JOB = {**a_job("j"), "status": {"startTime": "2026-01-01T00:00:01Z", "conditions": [FAILED]}}
KILLED = {"name": "pytorch", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
POD = {
    "kind": "Pod",
    "metadata": {"name": "j-worker-0", "labels": {"training.kubeflow.org/replica-type": "worker"}},
    "status": {"phase": "Failed", "containerStatuses": [KILLED]},
}
ERROR = {"message": "ValueError: no data", "worker": "j-worker-0"}
DOCUMENT = ErrorDocument(error={**ERROR, "code": "c", "kind": 1}).SerializeToString()
OOM = """\
RETRYABLE_FAILED (OOMKilled, oom-host)
  worker-0 failed: OOMKilled, killed by SIGKILL (exit code 137) (oom-host)
  killed from outside, usually for lack of memory: request more, or load less per rank
  Flyte may try again
"""


def run(*args, stdin=""):
    return CliRunner().invoke(command, args, input=stdin)


def test_job_and_pods_are_read_from_separate_files(tmp_path):
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(JOB))
    # The API server omits the kind of the items of a list.
    pod = {key: value for key, value in POD.items() if key != "kind"}
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump({"kind": "PodList", "items": [pod, 7]}))
    assert run(str(tmp_path / "job.yaml"), str(tmp_path / "pods.yaml")).output == OOM
    # A file that is given twice is read once.
    assert run(*[str(tmp_path / name) for name in ("job.yaml", "pods.yaml", "job.yaml")]).output == OOM


def test_unquoted_timestamps_are_read(tmp_path):
    result = run("-", "--now", "2026-01-01T00:01:02Z", stdin=yaml.safe_dump(JOB).replace("'", ""))
    assert result.output.startswith("RETRYABLE_FAILED (Failed, system-error)")


def test_error_file_is_read_from_a_path(tmp_path):
    (tmp_path / "error-1.pb").write_bytes(DOCUMENT)
    output = run("-", str(tmp_path / "error-1.pb"), stdin=yaml.safe_dump(JOB)).output
    worker = "  worker-0 failed: ValueError: no data (user-error)"
    assert output.splitlines()[:2] == ["RETRYABLE_FAILED (ValueError, user-error)", worker]


def batch(*requests):
    lines = [each if isinstance(each, str) else json.dumps(each) for each in requests]
    return [json.loads(line) for line in run("--batch", stdin="\n".join(lines)).output.splitlines()]


def test_batch_mode_returns_a_result_for_each_line():
    complete = {"id": 1, "job": JOB, "pods": [POD], "now": "2026-01-01T01:00:00Z"}
    first, *invalid, last = batch(complete, "nonsense", "[1]", {"id": "x", "job": 7, "now": 7})
    verdict = {"phase": "RETRYABLE_FAILED", "reason": "OOMKilled", "cause": "oom-host", "retry": True}
    message = "\n".join(line.strip() for line in OOM.splitlines()[1:3])
    assert first == {**verdict, "id": 1, "message": message, "logs": []}
    assert [list(each) for each in invalid] == [["id", "problems"]] * 2
    assert (last["id"], last["phase"]) == ("x", "RETRYABLE_FAILED")


FORMS = {
    "json": {"path": "p", "error": ERROR},
    "document": {"path": "p", "document": {"error": ERROR}},
    "base64": {"path": "p", "base64": base64.b64encode(DOCUMENT).decode()},
}


def test_batch_mode_uses_the_given_execution_and_settings():
    execution = {"project": "p", "domain": "d", "name": "f1"}
    template = {"name": "l", "templateUris": ["x/{{ .executionName }}"]}
    request = {
        "job": {**a_job("j"), "status": {"conditions": [{"type": "Suspended", "status": "True"}]}},
        "settings": {"kfpytorch": {"logs": {"templates": [template]}}},
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


# ---- a namespace with many jobs


def a_pod(job):
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/job-name": job}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    return {
        "kind": "Pod",
        "metadata": {"name": f"{job}-worker-0", "labels": labels},
        "status": {"phase": "Pending", "conditions": [{**condition, "message": message}]},
    }


NAMESPACE = yaml.safe_dump({"kind": "List", "items": [a_job("a"), a_job("b"), a_pod("b")]})


def explain(*arguments, stdin=NAMESPACE):
    return run("-", "--now", NOW, *arguments, stdin=stdin)


@pytest.mark.parametrize(("job", "phase"), [("a", "INITIALIZING"), ("b", "WAITING_FOR_RESOURCES")])
def test_selected_job_is_explained_with_its_own_pods(job: str, phase: str) -> None:
    result = explain("--job", job)
    assert (result.exit_code, result.output.split()[0]) == (0, phase)


def test_outputs_file_is_not_read_as_an_error_file(tmp_path):
    (tmp_path / "outputs.pb").write_bytes(b"\0")
    job = a_job("a")
    job["status"]["conditions"].append({"type": "Succeeded", "status": "True", "lastTransitionTime": NOW})
    assert explain(str(tmp_path / "outputs.pb"), stdin=yaml.safe_dump(job)).output.startswith("SUCCEEDED")


def an_event(about):
    message = f'pods "{about}" is forbidden: exceeded quota: gpus'
    event = {"kind": "Event", "type": "Warning", "reason": "FailedCreatePod", "message": message}
    return {**event, "involvedObject": {"kind": "PyTorchJob", "name": about}}


def a_group(owner):
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no quota"}
    return {
        "kind": "Workload",
        "metadata": {"name": f"pytorchjob-{owner}-1f", "ownerReferences": [{"name": owner}]},
        "status": {"conditions": [condition]},
    }


def a_train_job(name, phase):
    labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": "node"}
    metadata = {"name": f"{name}-node-0-0-aaaaa", "labels": labels}
    job = {"kind": "TrainJob", "metadata": {"name": name}, "spec": {"trainer": {"numNodes": 1}}}
    return [job, {"kind": "Pod", "metadata": metadata, "status": {"phase": phase}}]


JOBS = [a_job("a"), a_job("b"), a_job("a-b")]


@pytest.mark.parametrize(
    ("own", "others"),
    [
        *((JOBS, [each]) for each in (an_event("b"), an_event("a-b-worker-0"), a_group("b"))),
        (a_train_job("a", "Pending"), [*a_train_job("b", "Running"), *a_train_job("a-b", "Failed")]),
    ],
)
def test_objects_of_other_jobs_are_ignored(own: list[Any], others: list[Any]) -> None:
    alone, among_others = (
        explain("--job", "a", stdin=yaml.safe_dump_all(each)) for each in (own, [*own, *others])
    )
    assert (among_others.exit_code, among_others.output) == (0, alone.output)


@pytest.mark.parametrize(
    ("own", "phase"),
    [
        (an_event("a"), "INITIALIZING (FailedCreatePod, quota-exceeded)"),
        (an_event("a-worker-0"), "INITIALIZING (FailedCreatePod, quota-exceeded)"),
        ({**an_event("a"), "involvedObject": None}, "INITIALIZING (FailedCreatePod, quota-exceeded)"),
        (a_group("a"), "INITIALIZING (Pending, queue)"),
    ],
)
def test_events_and_pod_groups_of_the_job_are_applied(own: dict[str, Any], phase: str) -> None:
    result = explain("--job", "a", stdin=yaml.safe_dump_all([a_job("a"), a_job("b"), own]))
    assert result.output.startswith(phase)


@pytest.mark.parametrize(
    ("arguments", "text", "code", "error"),
    [
        ((), "", 2, "no file is given; run: kubectl get"),
        (("-", "--now", "today"), "", 2, "--now today is not an RFC 3339 time"),
        (("-", "--batch"), "", 2, "--batch reads all input from stdin"),
        (("-",), "{", 1, "-: is neither YAML nor JSON"),
        (("-",), NAMESPACE, 2, "there is more than one job; add --job with one of: a, b"),
        (("-", "--job", "c"), NAMESPACE, 2, "there is no job c; add --job with one of: a, b"),
        (("-",), "kind: TFJob", 1, "no file contains a PyTorchJob or TrainJob; run: kubectl get"),
        (("-", "nowhere/outputs.pb"), NAMESPACE, 2, "nowhere/outputs.pb: No such file or directory"),
        (("-", "--settings", "none.yaml"), NAMESPACE, 2, "settings none.yaml: No such file or directory"),
    ],
)
def test_invalid_command_line_or_file_is_explained(arguments, text, code, error):
    result = run(*arguments, stdin=text)
    output = " ".join(result.stderr.replace("│", "").split())
    assert (result.exit_code, result.stdout, error in output) == (code, "", True), output


def test_verdict_is_printed_as_json(tmp_path):
    template = "{displayName: Logs of, templateUris: ['http://logs/{{.podName}}']}"
    logs = f"kfpytorch: {{logs: {{templates: [{template}]}}}}"
    verdict = {"phase": "INITIALIZING", "reason": "Created", "cause": None, "retry": False}
    links = [{"name": "Logs of worker-0", "uri": "http://logs/a-worker-0"}]
    (tmp_path / "settings.yaml").write_text(logs)
    options = ("--job", "a", "-o", "json", "--settings", str(tmp_path / "settings.yaml"))
    printed = json.loads(explain(*options).stdout)
    assert printed == {**verdict, "message": "0 of 1 replicas ready", "logs": links}
