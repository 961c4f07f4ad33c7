"""Our server with the real Trainer and JobSet, which it finds by itself; only the pods are simulated."""

from dataclasses import replace
from datetime import timedelta

from rig import trainer
from rig.api import pods
from rig.backend import Backend
from rig.caller import Caller, CallerAttempt, Shape
from rig.control_plane import ControlPlane
from rig.fake_nodes import BY_HAND, RUN
from rig.process import wait_for
from rig.trainer import PlayedJob

from backend_plugin import client

PLANE = "with_trainer"
NAMESPACE = "trainjobs"
NODES = ("node-0", "node-1")
ENDS = ("SUCCEEDED", "FAILED", "RETRYABLE_FAILED")
PATHS = [path.format(NAMESPACE) for path in (trainer.TRAINJOBS, trainer.RUNTIMES)]
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
MOST_DISRUPTIONS = 2
SETTINGS = {"kfpytorch": {"max-disruptions": MOST_DISRUPTIONS}}
ELASTIC = {
    "masterReplicas": {},
    "workerReplicas": {"replicas": 6},
    "elasticConfig": {"minReplicas": 2, "maxReplicas": 6, "nprocPerNode": 1},
}


def start(plane: ControlPlane, caller: Caller, shape: Shape) -> tuple[CallerAttempt, PlayedJob]:
    """Create a job whose pods a test controls."""
    attempt = caller.create(shape=replace(shape, annotations={BY_HAND: "yes"}))
    return attempt, PlayedJob(plane.admin, NAMESPACE, attempt.job)


def test_job_succeeds_and_its_objects_are_deleted(
    plane: ControlPlane, caller: Caller, served: Backend
) -> None:
    attempt = caller.create(shape=Shape(workers=2, annotations={RUN: "15s"}))
    caller.wait_for(attempt, "RUNNING", part="3 of 3 replicas ready")
    job, runtime = (f"{path}/{attempt.job}" for path in PATHS)
    uid = plane.admin.get(job)["metadata"]["uid"]

    wait_for(
        lambda: plane.admin.get(runtime)["metadata"].get("ownerReferences", []),
        lambda owners: [each["uid"] for each in owners] == [uid],
    )
    nodes = trainer.list_pods(plane.admin, NAMESPACE, attempt.job)
    assert sorted(nodes) == ["node-0", "node-1", "node-2"]
    for pod in nodes.values():
        (container,) = pod["spec"]["containers"]
        env = {each["name"]: each.get("value") for each in container["env"]}
        assert env["MASTER_ADDR"] == f"{attempt.job}-node-0-0.{attempt.job}"
        assert (env["WORLD_SIZE"], env["PET_NNODES"], env["RANK"]) == ("3", "3", None)
    caller.succeeded(attempt)
    limit = timedelta(seconds=60)
    ended = client.wait_for_job(attempt.job, timeout=limit, namespace=NAMESPACE, server=str(served.state))
    assert ended.verdict.phase == "SUCCEEDED"
    assert caller.wait_for(attempt, *ENDS).phase == "SUCCEEDED"
    caller.delete(attempt)
    for path in (job, runtime, *(pods(NAMESPACE, each["metadata"]["name"]) for each in nodes.values())):
        plane.admin.wait_until_gone(path)


def test_disruptions_up_to_the_limit_cost_no_attempt(plane: ControlPlane, caller: Caller) -> None:
    attempt, job = start(plane, caller, Shape(workers=1))
    for _ in range(MOST_DISRUPTIONS):
        job.run(*NODES)
        caller.wait_for(attempt, "RUNNING")
        uids = job.uids
        job.end("node-1", 143, conditions=[DISRUPTED])
        wait_for(lambda uids=uids: job.list_replaced(uids), lambda found: found == {*NODES})
        assert caller.get(attempt).phase == "RUNNING"
    job.run(*NODES)
    job.end("node-0", 143, conditions=[DISRUPTED])
    assert caller.wait_for(attempt, *ENDS).phase == "RETRYABLE_FAILED"
    wait_for(lambda: job.pods, lambda found: not found)


def test_pod_failure_rule_fails_the_task_before_the_restart_limit(
    plane: ControlPlane, caller: Caller
) -> None:
    rules = [{"action": "FailJob", "exitCodes": [42]}, {"action": "Ignore", "exitCodes": [43]}]
    shape = Shape(workers=1, custom=trainer.build_options(maxRestarts=3, podFailurePolicy=rules))
    attempt, job = start(plane, caller, shape)
    for code, replaced in ((1, {"node-0", "node-1"}), (43, {"node-1"})):
        job.run(*NODES)
        caller.wait_for(attempt, "RUNNING")
        uids = job.uids
        job.end("node-1", code)
        wait_for(
            lambda uids=uids: job.list_replaced(uids), lambda found, replaced=replaced: found == replaced
        )
        assert caller.get(attempt).phase == "RUNNING"
    job.run(*NODES)
    job.end("node-1", 42)
    response = caller.wait_for(attempt, *ENDS)
    assert (response.phase, response.message.partition("\n")[0]) == (
        "FAILED",
        "node-1 failed: exit code 42 (user-error)",
    )


def test_success_policy_ends_the_job_after_the_first_node(plane: ControlPlane, caller: Caller) -> None:
    shape = Shape(workers=1, custom=trainer.build_options(successPolicy={"succeededIndexes": "0"}))
    attempt, job = start(plane, caller, shape)
    job.run(*NODES)
    caller.succeeded(attempt)
    job.end("node-0")
    assert caller.wait_for(attempt, *ENDS).phase == "SUCCEEDED"
    wait_for(lambda: job.pods, lambda found: set(found) <= {"node-0"})


def test_elastic_job_succeeds_without_unscheduled_nodes(plane: ControlPlane, caller: Caller) -> None:
    attempt, job = start(plane, caller, Shape(custom=ELASTIC, gpus=4))
    placed = wait_for(lambda: job.placed, lambda found: len(found) == 4)
    job.run(*placed)
    caller.wait_for(attempt, "RUNNING")
    caller.succeeded(attempt)
    for name in placed:
        job.end(name)
    assert caller.wait_for(attempt, *ENDS).phase == "SUCCEEDED"
    wait_for(lambda: job.pods, lambda found: len(found) == 4)
