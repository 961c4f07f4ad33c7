"""``kfpytorch explain`` with files of a platform: a namespace with many jobs, settings, and other objects."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from backend_plugin.cli.commands import kfpytorch

NOW = "2026-01-01T03:00:00Z"


def a_job(name: str) -> dict[str, Any]:
    made = "2026-01-01T00:00:00Z"
    return {
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": made},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}},
        "status": {"startTime": made, "conditions": [{"type": "Created", "status": "True"}]},
    }


def a_pod(job: str) -> dict[str, Any]:
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/job-name": job}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    return {
        "kind": "Pod",
        "metadata": {"name": f"{job}-worker-0", "labels": labels},
        "status": {"phase": "Pending", "conditions": [{**condition, "message": message}]},
    }


NAMESPACE = yaml.safe_dump({"kind": "List", "items": [a_job("a"), a_job("b"), a_pod("b")]})


def explain(*arguments: str, stdin: str = NAMESPACE) -> Result:
    return CliRunner().invoke(kfpytorch, ["explain", "-", "--now", NOW, *arguments], input=stdin)


@pytest.mark.parametrize(("job", "phase"), [("a", "INITIALIZING"), ("b", "WAITING_FOR_RESOURCES")])
def test_selected_job_is_explained_with_its_own_pods(job: str, phase: str) -> None:
    result = explain("--job", job)
    assert (result.exit_code, result.output.split()[0]) == (0, phase)


def test_list_items_without_a_kind_are_read() -> None:
    pod = {key: value for key, value in a_pod("a").items() if key != "kind"}
    pods = {"kind": "PodList", "items": [pod, 7]}
    result = explain(stdin=yaml.safe_dump_all([{"kind": "PyTorchJobList", "items": [a_job("a")]}, pods]))
    assert result.output.startswith("WAITING_FOR_RESOURCES")


def test_outputs_file_is_not_read_as_an_error_file(tmp_path: Path) -> None:
    (tmp_path / "outputs.pb").write_bytes(b"\0")
    job = a_job("a")
    job["status"]["conditions"].append({"type": "Succeeded", "status": "True", "lastTransitionTime": NOW})
    result = explain(str(tmp_path / "outputs.pb"), stdin=yaml.safe_dump(job))
    assert result.output.startswith("SUCCEEDED")


def an_event(about: str) -> dict[str, Any]:
    message = f'pods "{about}" is forbidden: exceeded quota: gpus'
    event = {"kind": "Event", "type": "Warning", "reason": "FailedCreatePod", "message": message}
    return {**event, "involvedObject": {"kind": "PyTorchJob", "name": about}}


def a_group(owner: str) -> dict[str, Any]:
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no quota"}
    return {
        "kind": "Workload",
        "metadata": {"name": f"pytorchjob-{owner}-1f", "ownerReferences": [{"name": owner}]},
        "status": {"conditions": [condition]},
    }


@pytest.mark.parametrize("foreign", [an_event("b"), an_event("a-b-worker-0"), a_group("b")])
def test_events_and_pod_groups_of_other_jobs_are_ignored(foreign: dict[str, Any]) -> None:
    namespace = [a_job("a"), a_job("b"), a_job("a-b")]
    output, alone = (
        explain("--job", "a", stdin=yaml.safe_dump_all([*namespace, *more])).output
        for more in ([foreign], [])
    )
    assert output == alone


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
        ((), NAMESPACE, 2, "there is more than one job; add --job with one of: a, b"),
        (("--job", "c"), NAMESPACE, 2, "there is no job c; add --job with one of: a, b"),
        (
            (),
            "kind: TFJob",
            1,
            "no file contains a PyTorchJob or TrainJob, only TFJob; run: kubectl get pytorchjobs NAME",
        ),
        ((), "", 1, "no file contains a PyTorchJob or TrainJob; run: kubectl get pytorchjobs NAME"),
        (("nowhere/outputs.pb",), NAMESPACE, 2, "nowhere/outputs.pb: No such file or directory"),
        (("--settings", "none.yaml"), NAMESPACE, 2, "settings none.yaml: No such file or directory"),
    ],
)
def test_input_error_is_reported_on_one_line(
    arguments: tuple[str, ...], text: str, code: int, error: str
) -> None:
    result = explain(*arguments, stdin=text)
    assert (result.exit_code, result.stdout, result.stderr.startswith(f"Error: {error}")) == (code, "", True)
    assert result.stderr.count("\n") == 1


def with_settings(tmp_path: Path, text: str, *arguments: str) -> Result:
    (tmp_path / "settings.yaml").write_text(text)
    return explain(*arguments, "--settings", str(tmp_path / "settings.yaml"))


def test_verdict_is_printed_as_json(tmp_path: Path) -> None:
    template = "{displayName: Logs of, templateUris: ['http://logs/{{.podName}}']}"
    logs = f"kfpytorch: {{logs: {{templates: [{template}]}}}}"
    assert json.loads(with_settings(tmp_path, logs, "--job", "a", "-o", "json").stdout) == {
        "cause": None,
        "logs": [{"name": "Logs of worker-0", "uri": "http://logs/a-worker-0"}],
        "message": "0 of 1 replicas ready",
        "phase": "INITIALIZING",
        "reason": "Created",
        "retry": False,
    }


def test_queue_timeout_of_the_settings_applies(tmp_path: Path) -> None:
    impatient = with_settings(tmp_path, "kfpytorch: {timeouts: {queue-timeout: 1h}}", "--job", "b")
    assert explain("--job", "b").output.startswith("WAITING_FOR_RESOURCES")
    assert impatient.output.startswith("RETRYABLE_FAILED")


def test_batch_mode_rejects_other_arguments() -> None:
    assert explain("--batch").exit_code == 2


def test_invalid_settings_are_rejected_with_all_problems(tmp_path: Path) -> None:
    result = with_settings(tmp_path, "{default-cpu: 1, kfpytorch: {judgin: {}}}", "--job", "a")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[::2] == ["default-cpu: 1", "kfpytorch.judgin: {}"]


def test_batch_line_may_contain_settings() -> None:
    asked = {"id": 1, "job": a_job("b"), "pods": [a_pod("b")], "now": NOW}
    settings = ({}, {"kfpytorch": {"timeouts": {"queue-timeout": "1h"}}}, {"default-cpu": 1}, 3)
    lines = "\n".join(json.dumps({**asked, "settings": each}) for each in settings)
    replies = CliRunner().invoke(kfpytorch, ["explain", "--batch"], input=lines).output.splitlines()
    phases = [json.loads(line).get("phase") for line in replies]
    assert phases == ["WAITING_FOR_RESOURCES", "RETRYABLE_FAILED", None, None]
    problems = [json.loads(line)["problems"][0]["field"] for line in replies[2:]]
    assert problems == ["settings.default-cpu", "settings"]
