"""Whatever happens to a job, the controller comes to rest, and what is over stays over."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_world import World, is_terminating

from backend_plugin.core.errors import Refused
from backend_plugin.embedded.controller import CreatePod, Seen, Step, reconcile

# Limits, deletions, what is made in their place, the verdict: each may take one pass of its own.
MOST_PASSES = 8
STEPS = 8
POLICIES = st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"])


def roles() -> st.SearchStrategy[dict[str, Any]]:
    template = st.just({"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}})
    master = st.fixed_dictionaries({"replicas": st.just(1), "restartPolicy": POLICIES, "template": template})
    worker = st.fixed_dictionaries(
        {"replicas": st.integers(1, 4), "restartPolicy": POLICIES, "template": template}
    )
    some = st.fixed_dictionaries({"Worker": worker}, optional={"Master": master})
    return some | st.fixed_dictionaries({"Master": master})


def seldom(values: list[Any]) -> st.SearchStrategy[Any]:
    """Mostly nothing: a limit ends a job, and with it what may be seen of it."""
    return st.sampled_from([None, None, None, *values])


@st.composite
def run_policies(draw: st.DrawFn) -> dict[str, Any]:
    policy = {
        "cleanPodPolicy": draw(st.sampled_from(["None", "Running", "All"])),
        "backoffLimit": draw(seldom([0, 1, 3])),
        "activeDeadlineSeconds": draw(seldom([0, 30])),
        "ttlSecondsAfterFinished": draw(seldom([0, 30])),
        "suspend": draw(seldom([True])),
    }
    return {key: value for key, value in policy.items() if value is not None}


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    spec = {"pytorchReplicaSpecs": draw(roles()), "runPolicy": draw(run_policies())}
    if "Worker" in spec["pytorchReplicaSpecs"] and draw(st.booleans()):
        spec["elasticPolicy"] = {}
    return spec


@st.composite
def happenings(draw: st.DrawFn, world: World) -> dict[str, Any]:
    """One thing that may happen to a job and to the pods that it has now."""
    pods = [name.removeprefix("job-") for name in sorted(world.pods)]
    services = [name.removeprefix("job-") for name in sorted(world.services)]
    kinds: list[st.SearchStrategy[dict[str, Any]]] = [
        an("reap"),
        an("resume" if is_suspended(world) else "suspend"),
        an("dying", exit=st.sampled_from([0, 143])),
        an("scale", replicas=st.sampled_from([1, 2, 4]), via=st.just("spec")),
        an("scale", replicas=st.sampled_from([1, 4]), via=st.just("spec")),
        an("wait", seconds=st.sampled_from([0.4, 20, 40])),
    ]
    if pods:
        some = st.lists(st.sampled_from(pods), min_size=1, unique=True)
        told = some.flatmap(lambda each: st.tuples(*(reports(pod) for pod in each))).map(list)
        kinds += [an("pods", set=told)] * 8 + [an("delete_pod", pod=st.sampled_from(pods))]
    if services:
        kinds.append(an("delete_service", service=st.sampled_from(services)))
    return draw(draw(st.sampled_from(kinds)))


def an(op: str, **said: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"op": st.just(op), **said})


def reports(pod: str) -> st.SearchStrategy[dict[str, Any]]:
    """What a kubelet says of a pod: mostly that it runs, or has ended."""
    running = {"phase": "Running"}
    ended = [
        {"phase": "Succeeded", "exit": 0},
        {"phase": "Failed", "exit": 1},
        {"phase": "Failed", "exit": 137},
    ]
    unknown = {"phase": "Unknown", "containers": False}
    said = [running, running, running, {**running, "restarts": 1}, *ended, unknown]
    return st.sampled_from([{"pod": pod, **each} for each in said])


def is_suspended(world: World) -> bool:
    return world.job is not None and bool(world.job["spec"]["runPolicy"].get("suspend"))


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
            later = look(world.copy(now=world.now + timedelta(seconds=2)))
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


@given(specs(), st.booleans(), st.data())
def test_a_job_comes_to_rest_and_ends_once(spec: Any, bound: bool, data: st.DataObject) -> None:
    world = begun(spec, bound=bound)
    for _ in range(STEPS):
        before, made = ends(world), set()
        for wanted in passes(world):
            made |= {a.manifest["metadata"]["name"] for a in wanted.actions if isinstance(a, CreatePod)}
            # What is over stays over, and keeps its time.
            assert not before or world.job is None or ends(world) == before
            before = ends(world)
        if world.job is None:
            return
        over = ends(world)
        assert len(over) <= 1
        assert None not in over.values()
        # What was made is there, unless the job has ended meanwhile.
        assert over or made <= set(world.pods)
        world.now += timedelta(seconds=1)
        world.do(data.draw(happenings(world)))


@given(specs(), st.data())
def test_a_job_that_goes_on_has_a_pod_in_every_place(spec: Any, data: st.DataObject) -> None:
    """Once all that is deleted is gone; unless it is over, or suspended."""
    world = begun(spec, bound=True)
    for _ in range(STEPS):
        come_to_rest(world)
        world.do(data.draw(happenings(world)))
    # A pod that has failed may have to go first.
    for _ in range(2):
        come_to_rest(world)
        world.do({"op": "reap"})
    come_to_rest(world)
    if world.job is None or ends(world) or is_suspended(world):
        return
    roles = world.job["spec"]["pytorchReplicaSpecs"]
    places = {
        f"job-{role.lower()}-{index}" for role, each in roles.items() for index in range(each["replicas"])
    }
    assert {name for name, pod in world.pods.items() if not is_terminating(pod)} == places
    assert set(world.services) == places


def come_to_rest(world: World) -> None:
    for _ in passes(world):
        pass


def test_the_world_refuses_a_pod_that_is_there() -> None:
    world = begun({"pytorchReplicaSpecs": {"Master": {**a_master(), "replicas": 1}}}, bound=False)
    step = look(world)
    carry_out(world, step)
    with pytest.raises(Refused, match='pods "job-master-0" already exists'):
        carry_out(world, step)


def a_master() -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}}
