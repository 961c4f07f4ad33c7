"""Tests of the burn-in's manifest: the job of the task with another program, name and deadline."""

import pytest
from builders import a_run, a_template

from backend_plugin.core import task_annotation
from backend_plugin.core.names import OUTPUT_PREFIX
from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import read
from backend_plugin.doctor.burn_in import job

REPLICAS = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 3}}
ELASTIC = {
    "workerReplicas": {"replicas": 2},
    "elasticConfig": {"minReplicas": 2, "maxReplicas": 2, "nprocPerNode": 4, "maxRestarts": 3},
}
CONTAINER = {
    "image": "train:1",
    "command": ["train"],
    "args": ["--long"],
    "resources": {"limits": [{"name": "CPU", "value": "2"}]},
}


def planned(custom, token="a", settings=None, **template):
    run = job.build_attempt(a_run(), token)
    return plan(a_template(custom, **template), run, read(settings or {})).manifests[0]


def pods(manifest):
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    return {role: said["template"]["spec"] for role, said in roles.items()}


def test_every_role_runs_the_program_in_the_tasks_own_pod() -> None:
    before = planned(REPLICAS, container=CONTAINER)
    after = job.build_job(before, "program", 300)
    assert pods(after).keys() == {"Master", "Worker"}
    for role, spec in pods(after).items():
        (trainer,) = spec["containers"]
        was = pods(before)[role]
        assert trainer["command"] == ["python", "-c", "program", "300"]
        assert "args" not in trainer
        kept = {"name", "image", "resources", "env"}
        assert {key: trainer[key] for key in kept} == {key: was["containers"][0][key] for key in kept}
        assert {**spec, "containers": []} == {**was, "containers": [], "terminationGracePeriodSeconds": 2}
        assert after["spec"]["pytorchReplicaSpecs"][role]["restartPolicy"] == "Never"


def test_ranks_of_an_elastic_job_are_started_by_torchs_agent_once() -> None:
    after = job.build_job(planned(ELASTIC), "program", 300)
    command = ["python", "-m", "torch.distributed.run", "--no-python", "python", "-c", "program", "300"]
    assert pods(after)["Worker"]["containers"][0]["command"] == command
    assert after["spec"]["elasticPolicy"]["maxRestarts"] == 0
    assert after["spec"]["nprocPerNode"] == "4"


@pytest.mark.parametrize("custom", [REPLICAS, ELASTIC])
def test_it_is_tried_once_and_not_for_long_and_its_pods_stay_until_they_are_read(custom) -> None:
    said = {**custom, "runPolicy": {"cleanPodPolicy": "CLEANPOD_POLICY_ALL", "backoffLimit": 4}}
    after = job.build_job(planned(said), "program", 300)
    assert after["spec"]["runPolicy"] == {
        "cleanPodPolicy": "None",
        "ttlSecondsAfterFinished": 600,
        "activeDeadlineSeconds": 360,
    }
    known = task_annotation.read(after["metadata"]["annotations"], "project-development")
    assert known is not None
    assert known.deadlines.active_seconds == 360
    assert "kfpytorch.flyte.org/clean-pod-policy" not in after["metadata"]["annotations"]


def test_its_timers_are_its_own_and_not_the_tasks() -> None:
    gang = {"kfpytorch": {"gang": {"pendingTimeoutSeconds": 7}}}
    known = task_annotation.read(
        job.build_job(planned({**REPLICAS, **gang}), "p", 60)["metadata"]["annotations"], "ns"
    )
    assert known is not None
    assert known.deadlines.pending_seconds is None


def test_each_has_a_name_of_its_own_and_writes_to_no_store() -> None:
    one, other = planned(REPLICAS, "a"), planned(REPLICAS, "b")
    assert one["metadata"]["name"] != other["metadata"]["name"]
    assert one["metadata"]["name"].startswith("burn-in-n0-0-")
    assert one["metadata"]["annotations"][OUTPUT_PREFIX] == "kfpytorch-doctor://burn-in/a"
