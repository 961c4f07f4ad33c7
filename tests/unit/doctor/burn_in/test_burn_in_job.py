"""Tests of the burn-in's manifest, of its program, and of its findings from the log of rank 0."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from builders import a_run, a_template

from backend_plugin.core import task_annotation
from backend_plugin.core.names import OUTPUT_PREFIX
from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import read
from backend_plugin.doctor.burn_in import job, results, runner
from backend_plugin.doctor.check import Finding, Severity

REPLICAS = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 3}}
ELASTIC = {
    "workerReplicas": {"replicas": 2},
    "elasticConfig": {"minReplicas": 2, "maxReplicas": 2, "nprocPerNode": 4, "maxRestarts": 3},
}
COMMAND = ["python", "-c", "program", "300"]
LIMITS = {"limits": [{"name": "CPU", "value": "2"}]}
CONTAINER = {"image": "train:1", "command": ["train"], "args": ["--long"], "resources": LIMITS}
TRAIN_JOB = {"kfpytorch": {"dialect": "trainjob"}}
SIZES = [
    {"mebibytes": 1, "seconds": 0.001, "algbw": 1.05, "busbw": 1.836},
    {"mebibytes": 256, "seconds": 0.01, "algbw": 26.8, "busbw": 46.97},
]
SAID = {"ranks": 8, "hosts": 2, "backend": "nccl", "device": "NVIDIA H200", "torch": "2.9", "sizes": SIZES}
LINE = json.dumps({"kfpytorch-burn-in": SAID})


def planned(custom, token="a", settings=None, **template):
    run = job.build_attempt(a_run(), token)
    return plan(a_template(custom, **template), run, read(settings or {}))


def build_trial(*arguments):
    return job.build_trial(*arguments).job


def pods(manifest):
    return {role: spec["template"]["spec"] for role, spec in manifest["spec"]["pytorchReplicaSpecs"].items()}


def test_each_role_runs_the_program_in_the_pod_of_the_task() -> None:
    before = planned(REPLICAS, container=CONTAINER)
    after = build_trial(before, "program", 300)
    assert pods(after).keys() == {"Master", "Worker"}
    for role, spec in pods(after).items():
        (trainer,) = spec["containers"]
        was = pods(before.job)[role]
        assert trainer["command"] == COMMAND
        assert "args" not in trainer
        kept = {"name", "image", "resources", "env"}
        assert {key: trainer[key] for key in kept} == {key: was["containers"][0][key] for key in kept}
        assert {**spec, "containers": []} == {**was, "containers": [], "terminationGracePeriodSeconds": 2}
        assert after["spec"]["pytorchReplicaSpecs"][role]["restartPolicy"] == "Never"


def test_ranks_of_an_elastic_job_are_started_once_by_the_torch_agent() -> None:
    after = build_trial(planned(ELASTIC), "program", 300)
    command = ["python", "-m", "torch.distributed.run", "--no-python", *COMMAND]
    assert pods(after)["Worker"]["containers"][0]["command"] == command
    assert after["spec"]["elasticPolicy"]["maxRestarts"] == 0
    assert after["spec"]["nprocPerNode"] == "4"


@pytest.mark.parametrize("custom", [REPLICAS, ELASTIC])
def test_job_has_a_short_deadline_no_retries_and_keeps_its_pods(custom) -> None:
    policy = {"cleanPodPolicy": "CLEANPOD_POLICY_ALL", "backoffLimit": 4}
    gang = {"gang": {"pendingTimeoutSeconds": 7}}
    after = build_trial(planned({**custom, "runPolicy": policy, "kfpytorch": gang}), "program", 300)
    deadlines = {"ttlSecondsAfterFinished": 600, "activeDeadlineSeconds": 360}
    assert after["spec"]["runPolicy"] == {"cleanPodPolicy": "None", **deadlines}
    known = task_annotation.read(after["metadata"]["annotations"], "project-development")
    # The timeouts of the task do not apply.
    assert (known.deadlines.active_seconds, known.deadlines.pending_seconds) == (360, None)
    assert "kfpytorch.flyte.org/clean-pod-policy" not in after["metadata"]["annotations"]


def test_job_has_a_unique_name_and_an_output_prefix_without_a_store() -> None:
    one, other = planned(REPLICAS, "a"), planned(REPLICAS, "b")
    assert one.job["metadata"]["name"] != other.job["metadata"]["name"]
    assert one.job["metadata"]["name"].startswith("burn-in-n0-0-")
    assert one.job["metadata"]["annotations"][OUTPUT_PREFIX] == "kfpytorch-doctor://burn-in/a"


@pytest.mark.parametrize(("custom", "nodes"), [(REPLICAS, 4), (ELASTIC, 2)])
def test_train_job_pods_have_a_deadline_and_are_never_restarted(custom, nodes) -> None:
    before = planned({**custom, "runPolicy": {"backoffLimit": 4}}, settings=TRAIN_JOB)
    after = job.build_trial(before, "program", 300)
    assert after.job["spec"] == before.job["spec"]
    assert after.job["spec"]["trainer"]["numNodes"] == nodes
    options = json.loads(after.job["metadata"]["annotations"]["kfpytorch.flyte.org/train-job"])
    assert options | {"minNodes": nodes} == {"minNodes": nodes, "maxDisruptions": 0, "ttlSeconds": 600}
    known = task_annotation.read(after.job["metadata"]["annotations"], "project-development")
    assert known.deadlines.active_seconds == 360
    (runtime,) = after.prerequisites
    assert runtime["metadata"] == before.prerequisites[0]["metadata"]
    jobset = runtime["spec"]["template"]["spec"]
    assert jobset["failurePolicy"] == {"maxRestarts": 0}
    (node,) = jobset["replicatedJobs"]
    batch_job = node["template"]["spec"]
    assert batch_job == {"backoffLimit": 0, "template": batch_job["template"]}
    spec = batch_job["template"]["spec"]
    assert (spec["activeDeadlineSeconds"], spec["terminationGracePeriodSeconds"]) == (360, 2)
    (trainer,) = spec["containers"]
    assert (trainer["name"], trainer["command"][-4:]) == ("node", COMMAND)
    assert {each["name"]: each.get("value") for each in trainer["env"]}.get("PET_MAX_RESTARTS", "0") == "0"


def test_job_on_a_named_runtime_has_the_program_as_its_command() -> None:
    custom = {**REPLICAS, "kfpytorch": {"trainJob": {"runtime": "torch-distributed"}}}
    before = planned(custom, settings=TRAIN_JOB, container=CONTAINER)
    after = job.build_trial(before, "program", 300)
    assert (before.prerequisites, after.prerequisites) == ((), ())
    kept = {key: value for key, value in before.job["spec"]["trainer"].items() if key != "args"}
    assert before.job["spec"]["trainer"]["args"] == ["--long"]
    assert after.job["spec"]["trainer"] == {**kept, "command": COMMAND}
    assert after.job["spec"]["runtimeRef"]["name"] == "torch-distributed"


def build_success(line: str, *nodes: str) -> Finding:
    return results.build_success(results.find_measurement([line]), nodes)


def test_measurement_is_found_among_other_log_lines() -> None:
    broken = '{"kfpytorch-burn-in": {"ranks"'
    measured = results.find_measurement(["", "NCCL INFO", broken, '{"other": 1}', LINE, "bye"])
    assert (measured.ranks, [each.mebibytes for each in measured.sizes]) == (8, [1, 256])
    assert results.find_measurement([broken, "nothing"]) is None


def test_success_finding_contains_speed_location_and_unmeasured_parts() -> None:
    found = build_success(LINE, "a", "b")
    assert found.level is Severity.NOTE
    assert found.sentence == (
        "8 ranks in 2 pods on 2 nodes all-reduced with nccl on NVIDIA H200 (torch 2.9), bus bandwidth "
        "1.84 GB/s at 1 MiB, 47 GB/s at 256 MiB"
    )
    assert "nccl-tests" in found.remedy
    # On one node or with gloo, the remedy lists the parts that were not measured.
    found = build_success(LINE.replace("nccl", "gloo"), "a", "a")
    assert "2 pods on 1 node all-reduced" in found.sentence
    assert "the network between nodes was not measured" in found.remedy
    assert "nothing about GPUs" in found.remedy


def test_failure_finding_contains_the_last_nonempty_log_lines() -> None:
    found = results.build_failure("exit code 1", [*map(str, range(20)), "", "No module named torch", ""])
    assert found.level is Severity.ERROR
    assert found.sentence.splitlines()[0].endswith("exit code 1; the last lines of its log:")
    assert found.sentence.splitlines()[1:] == [
        *(f"    {each}" for each in range(11, 20)),
        "    No module named torch",
    ]
    assert results.build_failure("evicted").sentence == "the burn-in failed: evicted"


def ranks(number: int) -> list[subprocess.Popen[str]]:
    """Run the program with local ranks as in pods."""
    program = Path(runner.__file__).with_name("program.py").read_text()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(number)}
    env = {**os.environ, **world, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", program, "60"]
    return [
        subprocess.Popen(command, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(number)
    ]


@pytest.mark.torch
@pytest.mark.timeout(120)
def test_two_ranks_measure_and_only_rank_0_prints_the_result() -> None:
    first, second = ranks(2)
    with first, second:
        output, silence = first.communicate(timeout=100)[0], second.communicate(timeout=100)[0]
    assert (first.returncode, second.returncode) == (0, 0)
    assert silence == ""
    measured = results.find_measurement(output.splitlines())
    assert (measured.ranks, measured.hosts, measured.backend) == (2, 1, "gloo")
    assert [each.mebibytes for each in measured.sizes] == [1, 8, 32]
    for each in measured.sizes:
        assert each.algbw == pytest.approx(each.mebibytes * 2**20 / each.seconds / 1e9)
        # 2 (n - 1) / n for two ranks
        assert each.busbw == pytest.approx(each.algbw)
        assert each.busbw > 0
