"""Simulation of a history with the controller, in every possible order of events.

The operator visits the replica roles in any order in each pass, and retries a rejected pass at any time.
This explains most recordings. The others depend on timing. A pass may run between two changes of one step.
It may read the cache before the operator's last write arrives. A quota may still count an ended pod.

A history has an `id`, the job manifest, and `steps`. Each step has an action (`do`) and the `observed` state.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

from stored_world import BEGAN, NAMESPACE, World, is_terminating

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.objects import Key
from backend_plugin.embedded.operators import base
from backend_plugin.embedded.operators.pytorchjob.reconcile_pass import with_created_condition
from backend_plugin.embedded.operators.pytorchjob.reconciler import reconcile

Step = Mapping[str, Any]
Passes = Callable[[World], list[World]]
ORDERS = (("Master", "Worker"), ("Worker", "Master"))
# More worlds than in any step after which the operator comes to rest. Above this limit it loops without end.
_MOST = 150
History = Mapping[str, Any]
Observed = Mapping[str, Any]
Manifest = Mapping[str, Any]
_CONDITION = ("type", "status", "reason", "message")
_COUNTS = ("active", "succeeded", "failed")
_TIMES = ("startTime", "completionTime")
_OF_POD = ("name", "incarnation", "phase", "terminating", "labels", "annotations", "owners", "restartPolicy")
_OF_POD_TOO = ("schedulerName", "env", "ports", "initContainers")
_CAUSE = re.compile(r"((?:spec|metadata)[\w.\[\]]*): (\w+) value")


def build_world(history: Mapping[str, Any]) -> World:
    metadata = {key: history[key] for key in ("name", "labels", "annotations")}
    return World(
        spec={
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {**metadata, "namespace": NAMESPACE},
            "spec": history["spec"],
        },
        bound=history["bound"],
    )


def plain_ends(world: World, do: Step, at: Sequence[float]) -> list[World]:
    """Return the ends of a step if the operator reconciles after all changes.

    Args:
        world: The world before the step.
        do: The action of the step.
        at: The times at which the step began, was done and was observed.
    """
    starts = _starts(world, at)
    for start in starts:
        start.do(do)
    return _ends(starts, at, _passes)


def close_ends(world: World, do: Step, at: Sequence[float]) -> Iterator[list[World]]:
    """Yield the ends of a step that depend on timing, for one order of its changes at a time."""
    starts = _starts(world, at)
    if world.most_pods is not None:
        starts += [each.copy(is_quota_late=True) for each in starts]
    for start in starts:
        for moments in permutations(start.moments(do)):
            yield _ends(_interleaved(start, moments), at, _close_passes)


def _starts(world: World, at: Sequence[float]) -> list[World]:
    begun = world.copy(refused=(), missing=(), before=None)
    begun.now = BEGAN + timedelta(seconds=at[1])
    return [begun, begun.copy(is_awake=True)] if begun.is_retrying else [begun]


def _interleaved(start: World, moments: Sequence[Callable[[World], None]]) -> list[World]:
    """Return the worlds after all changes, with passes of the operator at any time between them."""
    worlds = [start.copy()]
    for moment in moments:
        for world in worlds:
            moment(world)
        if moment is not moments[-1]:
            worlds = _distinct(then for world in worlds for then in _explored(world, _close_passes)[0])
            worlds = [world.copy() for world in worlds]
    return worlds


def _ends(starts: Iterable[World], at: Sequence[float], passes: Passes) -> list[World]:
    until = BEGAN + timedelta(seconds=at[2])
    ends = [end for start in starts for end in _ripe(start, until, passes)]
    return _distinct(end.copy(before=None, is_quota_late=False) for end in ends)


def _ripe(world: World, until: datetime, passes: Passes) -> Iterator[World]:
    """Yield the worlds in which the operator rests, including rests after a scheduled wake-up."""
    for rest in _rests(world, passes):
        if rest.wake_at is None or rest.wake_at > until or rest.job is None:
            yield rest
        else:
            woken = rest.copy(now=max(rest.now, rest.wake_at), is_awake=True, wake_at=None)
            yield from _ripe(woken, until, passes)


def _rests(world: World, passes: Passes) -> list[World]:
    """Return the worlds in which the operator may rest, or all worlds that it reaches if it never rests."""
    rests = _explored(world, passes)[1]
    if rests:
        return rests
    return [each.copy(is_stormy=True) for each in _explored(world.copy(is_stormy=True), passes)[0]]


def _explored(world: World, passes: Passes) -> tuple[list[World], list[World]]:
    """Return the worlds that the operator may reach, and those of them in which it may rest."""
    seen, waiting, rests = {_key(world)}, [world], []
    for each in waiting:
        if not each.is_awake or each.job is None:
            rests.append(each)
            continue
        for then in passes(each):
            if not then.is_awake:
                rests.append(then)
            elif _key(then) not in seen and len(waiting) < _MOST:
                seen.add(_key(then))
                waiting.append(then)
    return waiting, _distinct(rests)


def _passes(world: World) -> list[World]:
    assert world.job is not None
    cached = world.cached or with_created_condition(world.job, world.now)
    has_order = len(world.job["spec"]["pytorchReplicaSpecs"]) > 1
    return [_pass(world, cached, order) for order in (ORDERS if has_order else ORDERS[:1])]


def _close_passes(world: World) -> list[World]:
    """Return all passes, including passes with a stale cache, in which the status update fails."""
    if world.before is None or world.job is None or world.before["metadata"] != world.job["metadata"]:
        return _passes(world)
    return [*_passes(world), *[_pass(world, world.before, order, is_late=True) for order in ORDERS]]


def _pass(world: World, cached: Mapping[str, Any], order: Sequence[str], *, is_late: bool = False) -> World:
    """Return the world after one pass. It is awake if the pass changed anything."""
    then = world.copy(is_awake=is_late, is_retrying=False, cached=cached, before=None)
    if is_late:
        then.cached = world.cached
    pods, services = list(then.pods.values()), list(then.services.values())
    snapshot = base.JobSnapshot(job=cached, pods=pods, services=services, now=then.now)
    wanted = reconcile(snapshot, upstream=True, order=order)
    try:
        for action in wanted.actions:
            act(then, action)
    except RequestRejected:
        then.is_retrying = True
        return then
    if wanted.status is not None and then.job is not None and not is_late:
        then.put_status(wanted.status)
    then.wake_at = wanted.wake_at
    return then


def act(world: World, action: Any) -> None:
    """Do an action of the operator; the world rejects an object that already exists."""
    match action:
        case base.Create({"kind": "Pod"} as manifest):
            world.create_pod(manifest)
        case base.Create(manifest):
            world.create_service(manifest)
        case base.Delete(Key("Pod", _, name)):
            world.delete_pod(name)
        case base.Delete(Key("Service", _, name)):
            world.delete_service(name)
        case _:
            world.delete_job()


def _distinct(worlds: Iterable[World]) -> list[World]:
    return list({_key(world): world for world in worlds}.values())


def _key(world: World) -> str:
    """Return the identity of a world. If the operator loops without end, this omits the pod incarnations."""
    pods = [
        (
            name,
            world.is_stormy or world.incarnations[name],
            [container.get("env") for container in pod["spec"]["containers"]],
            pod["status"],
            pod["metadata"].get("deletionTimestamp"),
        )
        for name, pod in sorted(world.pods.items())
    ]
    flags = [world.is_awake, world.is_retrying, str(world.wake_at), world.refused, world.missing]
    jobs = [world.job, world.cached, world.before, world.last_status]
    return json.dumps([jobs, pods, sorted(world.services), flags], default=str)


def unexplained(history: History, observed: Sequence[Observed], *, closely: bool) -> int | None:
    """Return the index of the first step with an observed end that is not possible here, or None."""
    index, worlds = _followed(history, observed, closely=closely)
    return None if worlds else index


def _followed(history: History, observed: Sequence[Observed], *, closely: bool) -> tuple[int, list[World]]:
    """Return the index of the last step and the worlds after it; no worlds after an unexplained step."""
    worlds, index = [build_world(history)], 0
    for index, after in enumerate(observed):
        before, do = worlds, history["steps"][index]["do"]
        worlds = like([end for world in before for end in plain_ends(world, do, after["at"])], after)
        if not worlds and closely:
            worlds = _closely_like(before, do, after)
        if not worlds:
            break
    return index, worlds


def _closely_like(before: Sequence[World], do: Mapping[str, Any], after: Observed) -> list[World]:
    tried = (ends for world in before for ends in close_ends(world, do, after["at"]))
    return next((found for found in (like(ends, after) for ends in tried) if found), [])


def like(worlds: Sequence[World], observed: Manifest) -> list[World]:
    """Return the worlds that are equal to the observation.

    If the operator loops without end, the parts of an observation are from different moments. Each part may
    then match another world, and any of these worlds may follow.
    """
    expected = recorded(observed)
    found = [played(world) for world in worlds]
    stormy = [each for world, each in zip(worlds, found, strict=True) if world.is_stormy]
    if not stormy:
        return [world for world, each in zip(worlds, found, strict=True) if each == expected]
    for each in (expected, *stormy):
        each["pods"] = [{**pod, "incarnation": 0, "terminating": False} for pod in each["pods"]]
    is_like = all(any(each[part] == expected[part] for each in stormy) for part in expected)
    return [world for world in worlds if world.is_stormy] if is_like else []


def recorded(observed: Manifest) -> dict[str, Any]:
    """Return the observed state, without parts that vary randomly."""
    job = observed["job"]
    return {
        "job": job and {"spec": job["spec"], "status": _recorded_status(job["status"])},
        "last": None if job or "last_status" not in observed else _recorded_status(observed["last_status"]),
        "pods": [{key: pod[key] for key in (*_OF_POD, *_OF_POD_TOO)} for pod in observed["pods"]],
        "services": [_sorted(service) for service in observed["services"]],
        "refused": [_refusal(each) for each in observed.get("refused", ())],
        "missing": observed.get("missing", []),
    }


def played(world: World) -> dict[str, Any]:
    """Return the state of a world, in the form of `recorded`."""
    job = world.job
    return {
        "job": job and {"spec": job["spec"], "status": status_of(job.get("status", {}), world)},
        "last": None if job or world.last_status is None else status_of(world.last_status, world),
        "pods": [pod_of(pod, world) for _, pod in sorted(world.pods.items())],
        "services": [service_of(service, world) for _, service in sorted(world.services.items())],
        "refused": [_refusal(each) for each in world.refused],
        "missing": list(world.missing),
    }


def _refusal(response: Manifest) -> Manifest:
    """Return the code, the reason, and the fields with the kinds of their errors, without the sentences."""
    causes = sorted({" ".join(cause) for cause in _CAUSE.findall(response["message"])})
    return {**response, "message": causes or response["message"]}


def _recorded_status(status: Manifest) -> Manifest:
    return {
        "conditions": [{key: each[key] for key in _CONDITION} for each in status["conditions"]],
        "replicas": _counts(status),
        **{name: status[name] for name in _TIMES},
    }


def status_of(status: Manifest, world: World, namespace: str = NAMESPACE) -> dict[str, Any]:
    """Return the compared fields. An index among the times of the same kind replaces each time."""
    return {
        "conditions": [_condition(each, namespace) for each in status.get("conditions") or ()],
        "replicas": _counts(status),
        **{name: 1 + world.times[name].index(status[name]) if status.get(name) else None for name in _TIMES},
    }


def _condition(condition: Manifest, namespace: str) -> Manifest:
    message = condition["message"].replace(f"{namespace}/", "NS/")
    return {**{key: condition[key] for key in _CONDITION}, "message": message}


def _counts(status: Manifest) -> Manifest:
    replicas = status.get("replicaStatuses") or {}
    return {role: {key: each[key] for key in _COUNTS if key in each} for role, each in replicas.items()}


def pod_of(pod: Manifest, world: World) -> Manifest:
    metadata, spec = pod["metadata"], pod["spec"]
    return {
        "name": metadata["name"],
        "incarnation": world.incarnations[metadata["name"]],
        "phase": pod["status"]["phase"],
        "terminating": is_terminating(pod),
        "labels": metadata.get("labels", {}),
        "annotations": metadata.get("annotations", {}),
        "owners": _owners(metadata, world),
        "restartPolicy": spec["restartPolicy"],
        "schedulerName": spec["schedulerName"],
        "env": {each["name"]: _appended(each) for each in spec["containers"]},
        "ports": {each["name"]: _ports(each) for each in spec["containers"]},
        "initContainers": [_init_container(each) for each in spec.get("initContainers", ())],
    }


def _appended(container: Manifest) -> list[list[str]]:
    """Return the operator's environment variables, which start with PYTHONUNBUFFERED."""
    variables = [[each["name"], each.get("value", "")] for each in container.get("env", ())]
    begins = [index for index, (name, _) in enumerate(variables) if name == "PYTHONUNBUFFERED"]
    return variables[begins[-1] :] if begins else []


def _init_container(container: Manifest) -> Manifest:
    fields = ("name", "image", "imagePullPolicy", "command", "resources")
    return {**{key: container.get(key) for key in fields}, "env": container.get("env", [])}


def _ports(container: Manifest) -> list[list[Any]]:
    return [[each.get("name"), each["containerPort"]] for each in container.get("ports", ())]


def service_of(service: Manifest, world: World) -> Manifest:
    metadata, spec = service["metadata"], service["spec"]
    return _sorted(
        {
            "name": metadata["name"],
            "labels": metadata["labels"],
            "selector": spec["selector"],
            "clusterIP": spec["clusterIP"],
            "owners": _owners(metadata, world),
            "publishNotReadyAddresses": spec.get("publishNotReadyAddresses", False),
            "ports": spec["ports"],
        }
    )


def _sorted(service: Manifest) -> Manifest:
    """Sort the ports, which the operator writes in random order."""
    return {**service, "ports": sorted(service["ports"], key=lambda port: port["port"])}


def _owners(metadata: Manifest, world: World) -> list[Manifest]:
    fields = ("kind", "name", "controller", "blockOwnerDeletion")
    return [
        {**{key: owner[key] for key in fields}, "current": owner["uid"] == world.uid}
        for owner in metadata.get("ownerReferences", ())
    ]
