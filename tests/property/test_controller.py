"""Whatever happens to a job, the controller comes to rest, and what is over stays over."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_world import World, is_terminating

from backend_plugin.embedded.admission import Refusal
from backend_plugin.embedded.controller import CreatePod, Seen, Step, reconcile

# Limits, deletions, what is made in their place, the verdict: each may take one pass of its own.
MOST_PASSES = 8
POLICIES = st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"])
FEW = st.integers(0, 3)


def roles() -> st.SearchStrategy[dict[str, Any]]:
    template = st.just({"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}})
    master = st.fixed_dictionaries({"replicas": st.just(1), "restartPolicy": POLICIES, "template": template})
    worker = st.fixed_dictionaries(
        {"replicas": st.integers(1, 4), "restartPolicy": POLICIES, "template": template}
    )
    some = st.fixed_dictionaries({"Worker": worker}, optional={"Master": master})
    return some | st.fixed_dictionaries({"Master": master})


RUN_POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "cleanPodPolicy": st.sampled_from(["None", "Running", "All"]),
        "backoffLimit": FEW,
        "activeDeadlineSeconds": st.sampled_from([0, 30]),
        "ttlSecondsAfterFinished": st.sampled_from([0, 30]),
        "suspend": st.booleans(),
    },
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    spec = {"pytorchReplicaSpecs": draw(roles()), "runPolicy": draw(RUN_POLICIES)}
    if "Worker" in spec["pytorchReplicaSpecs"] and draw(st.booleans()):
        spec["elasticPolicy"] = {}
    return spec


PODS = st.sampled_from(["master-0", "worker-0", "worker-1", "worker-2"])
ENDS = st.fixed_dictionaries({"pod": PODS, "phase": st.just("Failed"), "exit": st.sampled_from([1, 137])})
REPORTS = st.one_of(
    st.fixed_dictionaries({"pod": PODS, "phase": st.just("Running"), "restarts": FEW}),
    st.fixed_dictionaries({"pod": PODS, "phase": st.just("Succeeded"), "exit": st.just(0)}),
    ENDS,
    st.fixed_dictionaries({"pod": PODS, "phase": st.just("Unknown"), "containers": st.just(False)}),
)
STEPS = st.one_of(
    st.fixed_dictionaries({"op": st.just("pods"), "set": st.lists(REPORTS, min_size=1, max_size=4)}),
    st.fixed_dictionaries({"op": st.just("delete_pod"), "pod": PODS}),
    st.fixed_dictionaries({"op": st.just("delete_service"), "service": PODS}),
    st.fixed_dictionaries({"op": st.just("dying"), "exit": st.sampled_from([0, 143])}),
    st.fixed_dictionaries({"op": st.just("scale"), "replicas": st.integers(1, 4), "via": st.just("spec")}),
    st.fixed_dictionaries({"op": st.just("wait"), "seconds": st.sampled_from([0.4, 20, 40])}),
    st.sampled_from([{"op": op} for op in ("reap", "suspend", "resume", "touch")]),
)


def look(world: World) -> Step:
    assert world.job is not None
    pods, services = list(world.pods.values()), list(world.services.values())
    return reconcile(Seen(job=world.job, pods=pods, services=services, now=world.now))


def carry_out(world: World, step: Step) -> None:
    """Whatever the controller makes is taken: it never makes what is there."""
    for action in step.actions:
        match type(action).__name__:
            case "CreatePod":
                world.create_pod(action.manifest)  # type: ignore[union-attr]
            case "CreateService":
                world.create_service(action.manifest)  # type: ignore[union-attr]
            case "DeletePod":
                world.delete_pod(action.name)  # type: ignore[union-attr]
            case "DeleteService":
                world.delete_service(action.name)  # type: ignore[union-attr]
            case _:
                world.delete_job()
    if step.status is not None and world.job is not None:
        world.put_status(step.status)


def passes(world: World) -> Iterator[Step]:
    """Passes until nothing is left to be done."""
    for _ in range(MOST_PASSES):
        if world.job is None:
            return
        step = look(world)
        if not step.actions and step.status is None:
            assert step.wake_at is None or step.wake_at > world.now, "it would be woken at once, for ever"
            later = look(world.copy(now=world.now + timedelta(milliseconds=300)))
            assert step.wake_at is not None or (later.actions, later.status) == ((), None)
            return
        yield step
        carry_out(world, step)
    raise AssertionError("it does not come to rest")


def ends(world: World) -> dict[str, Any]:
    """The ends of a job, with the time of its completion."""
    status = (world.job or {}).get("status", {})
    kinds = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
    return {kind: status.get("completionTime") for kind in sorted(kinds & {"Succeeded", "Failed"})}


def begun(spec: dict[str, Any], *, bound: bool) -> World:
    sent = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job", "namespace": "ns"},
        "spec": spec,
    }
    world = World(spec=sent, bound=bound, is_upstream=False)
    world.do({"op": "create"})
    assert world.refused == ()
    return world


@given(specs(), st.booleans(), st.lists(STEPS, max_size=12))
def test_a_job_comes_to_rest_and_ends_once(spec: Any, bound: bool, steps: list[Any]) -> None:
    world = begun(spec, bound=bound)
    for step in [{"op": "touch"}, *steps]:
        before = ends(world)
        world.do(step)
        made = set()
        for wanted in passes(world):
            made |= {a.manifest["metadata"]["name"] for a in wanted.actions if isinstance(a, CreatePod)}
            # What is over stays over, and keeps its time.
            assert not before or world.job is None or ends(world) == before
            before = ends(world)
        if world.job is None:
            return
        after = ends(world)
        assert len(after) <= 1
        assert None not in after.values()
        # What was made is there, unless the job has ended meanwhile.
        assert after or made <= set(world.pods)
        world.now += timedelta(seconds=1)


@given(specs(), st.lists(STEPS, max_size=8))
def test_in_no_state_of_its_pods_does_it_wait_for_nothing(spec: Any, steps: list[Any]) -> None:
    """A job that is neither over nor suspended has a pod in every place once all that is deleted is gone."""
    world = begun(spec, bound=True)
    for step in [*steps, {"op": "reap"}]:
        world.do(step)
        for _ in passes(world):
            pass
    world.do({"op": "reap"})
    for _ in passes(world):
        pass
    if world.job is None or ends(world) or world.job["spec"]["runPolicy"].get("suspend"):
        return
    roles = world.job["spec"]["pytorchReplicaSpecs"]
    places = {
        f"job-{role.lower()}-{index}" for role, each in roles.items() for index in range(each["replicas"])
    }
    assert {name for name, pod in world.pods.items() if not is_terminating(pod)} == places
    assert set(world.services) == places


def test_the_world_refuses_a_pod_that_is_there() -> None:
    world = begun({"pytorchReplicaSpecs": {"Master": {**a_master(), "replicas": 1}}}, bound=False)
    step = look(world)
    carry_out(world, step)
    with pytest.raises(Refusal, match='pods "job-master-0" already exists'):
        carry_out(world, step)


def a_master() -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}}
