"""Our server with the real Trainer and JobSet, which it finds by itself; only the pods are simulated."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from rig import kubelet, trainer
from rig.backend import Backend
from rig.caller import Caller, CallerAttempt, Shape
from rig.control_plane import ControlPlane
from rig.fake_nodes import BY_HAND, RUN
from rig.process import wait_for

from backend_plugin import client

OPERATOR = "trainer"
NAMESPACE = "trainjobs"
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


def list_pods(plane: ControlPlane, attempt: CallerAttempt) -> Mapping[int, dict[str, Any]]:
    """Return the newest pods of a job that are not being deleted, by the index of the node."""
    found = trainer.list_pods(plane.admin, NAMESPACE, attempt.job)
    return {
        int(each["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]): each
        for each in sorted(found, key=lambda each: str(each["metadata"]["creationTimestamp"]))
        if "deletionTimestamp" not in each["metadata"]
    }


def start(plane: ControlPlane, caller: Caller, shape: Shape, *, nodes: int) -> CallerAttempt:
    """Create a job whose pods a test controls, and return when they exist."""
    attempt = caller.create(shape=Shape(**{**vars(shape), "annotations": {BY_HAND: "yes"}}))
    wait_for_pods(plane, attempt, nodes)
    return attempt


def wait_for_pods(plane: ControlPlane, attempt: CallerAttempt, nodes: int, other: Sequence[str] = ()) -> None:
    """Wait until the job has pods other than those with these uids."""

    def are_there(found: Mapping[int, dict[str, Any]]) -> bool:
        return len(found) == nodes and not {each["metadata"]["uid"] for each in found.values()} & set(other)

    wait_for(lambda: list_pods(plane, attempt), are_there)


def run_all(plane: ControlPlane, caller: Caller, attempt: CallerAttempt) -> None:
    for pod in list_pods(plane, attempt).values():
        kubelet.run(plane.admin, pod)
    caller.wait_for(attempt, "RUNNING")


def end(plane: ControlPlane, attempt: CallerAttempt, node: int, code: int, **status: Any) -> None:
    kubelet.end(plane.admin, list_pods(plane, attempt)[node], code, **status)


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
    nodes = list_pods(plane, attempt)
    assert sorted(nodes) == [0, 1, 2]
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
    wait_for(lambda: list_pods(plane, attempt), lambda found: not found)
    for path in (job, runtime):
        plane.admin.wait_until_gone(path)


def test_disruptions_up_to_the_limit_cost_no_attempt(plane: ControlPlane, caller: Caller) -> None:
    attempt = start(plane, caller, Shape(workers=1), nodes=2)
    for _ in range(MOST_DISRUPTIONS):
        run_all(plane, caller, attempt)
        nodes = list_pods(plane, attempt)
        end(plane, attempt, 1, 143, conditions=[DISRUPTED])
        wait_for_pods(plane, attempt, 2, [each["metadata"]["uid"] for each in nodes.values()])
        assert caller.get(attempt).phase == "RUNNING"
    run_all(plane, caller, attempt)
    end(plane, attempt, 0, 143, conditions=[DISRUPTED])
    assert caller.wait_for(attempt, *ENDS).phase == "RETRYABLE_FAILED"
    wait_for(lambda: list_pods(plane, attempt), lambda found: not found)


def test_pod_failure_rule_fails_the_task_before_the_restart_limit(
    plane: ControlPlane, caller: Caller
) -> None:
    rules = [{"action": "FailJob", "exitCodes": [42]}, {"action": "Ignore", "exitCodes": [43]}]
    shape = Shape(workers=1, custom=trainer.build_options(maxRestarts=3, podFailurePolicy=rules))
    attempt = start(plane, caller, shape, nodes=2)
    for code, replaced in ((1, {0, 1}), (43, {1})):
        run_all(plane, caller, attempt)
        nodes = list_pods(plane, attempt)
        end(plane, attempt, 1, code)
        wait_for(
            lambda nodes=nodes: find_replaced(plane, attempt, nodes),
            lambda found, replaced=replaced: found == replaced,
        )
        assert caller.get(attempt).phase == "RUNNING"
    run_all(plane, caller, attempt)
    end(plane, attempt, 1, 42)
    response = caller.wait_for(attempt, *ENDS)
    assert (response.phase, response.message.partition("\n")[0]) == (
        "FAILED",
        "node-1 failed: exit code 42 (user-error)",
    )


def find_replaced(
    plane: ControlPlane, attempt: CallerAttempt, before: Mapping[int, dict[str, Any]]
) -> set[int]:
    """Return the nodes that have another pod than before; all of them must have a pod."""
    now = list_pods(plane, attempt)
    if now.keys() != before.keys():
        return set()
    return {index for index, pod in now.items() if pod["metadata"]["uid"] != before[index]["metadata"]["uid"]}


def test_success_policy_ends_the_job_after_the_first_node(plane: ControlPlane, caller: Caller) -> None:
    shape = Shape(workers=1, custom=trainer.build_options(successPolicy={"succeededIndexes": "0"}))
    attempt = start(plane, caller, shape, nodes=2)
    run_all(plane, caller, attempt)
    caller.succeeded(attempt)
    end(plane, attempt, 0, 0)
    assert caller.wait_for(attempt, *ENDS).phase == "SUCCEEDED"
    wait_for(lambda: list_pods(plane, attempt), lambda found: set(found) <= {0})


def test_jobset_receives_the_topology_of_a_job(plane: ControlPlane, caller: Caller) -> None:
    shape = Shape(custom=trainer.build_options(topology={"level": "kubernetes.io/hostname"}))
    attempt = start(plane, caller, shape, nodes=1)
    (pod,) = list_pods(plane, attempt).values()
    (term, *_) = pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    caller.delete(attempt)


def test_elastic_job_succeeds_without_unscheduled_nodes(plane: ControlPlane, caller: Caller) -> None:
    attempt = start(plane, caller, Shape(custom=ELASTIC, gpus=4), nodes=6)
    placed = wait_for(lambda: list_placed(plane, attempt), lambda found: len(found) == 4)
    for pod in placed:
        kubelet.run(plane.admin, pod)
    caller.wait_for(attempt, "RUNNING")
    caller.succeeded(attempt)
    for pod in placed:
        kubelet.end(plane.admin, pod)
    assert caller.wait_for(attempt, *ENDS).phase == "SUCCEEDED"
    wait_for(lambda: list_pods(plane, attempt), lambda found: len(found) == 4)


def list_placed(plane: ControlPlane, attempt: CallerAttempt) -> Sequence[dict[str, Any]]:
    return [each for each in list_pods(plane, attempt).values() if "nodeName" in each["spec"]]
