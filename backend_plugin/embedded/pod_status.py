"""Builds the status of a pod from the state that its shim writes, as a kubelet would. Pure."""

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Annotated, TypeAlias

import msgspec

from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import find_condition, format_time, get_name, get_node_name
from backend_plugin.embedded.pod_addresses import LOOPBACK
from backend_plugin.embedded.shim.lifecycle import APP, INIT, SIDECAR, format_node_lost

Moment: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=253_402_300_800)]
"""A time in seconds since 1970, at most the end of the year 9999: later times cannot be formatted."""


class TerminatedState(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one container run."""

    exit_code: int
    reason: str
    message: str = ""
    started: Moment
    finished: Moment

    def as_json(self) -> Manifest:
        """Return this end of a run as the Kubernetes object `ContainerStateTerminated`."""
        message = {"message": self.message} if self.message else {}
        return {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": _format_time(self.started),
            "finishedAt": _format_time(self.finished),
            **message,
        }


class ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a container, as the shim of its pod writes it."""

    kind: str
    done: bool = False
    """True if the container has ended and will not be restarted."""
    waiting: tuple[str, str] | None = None
    running_since: Moment | None = None
    ended: TerminatedState | None = None
    """The end of the last run that has ended; None if no run has ended."""
    previous: TerminatedState | None = None
    """The end of the run before the run that `ended` describes."""
    restarts: int = 0

    @property
    def is_running(self) -> bool:
        """True if the container runs. It is then also ready, because probes are not emulated."""
        return self.running_since is not None

    @property
    def has_started(self) -> bool:
        """True if the container runs or has run."""
        return self.is_running or self.ended is not None

    @property
    def has_succeeded(self) -> bool:
        """True if the last run has succeeded and the container does not run."""
        return not self.is_running and self.ended is not None and self.ended.exit_code == 0


class PodState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a pod, as its shim writes it."""

    since: Moment
    final: bool = False
    """True if no process of the pod remains and none will be started."""
    reason: str = ""
    message: str = ""
    containers: dict[str, ContainerState]

    @property
    def is_ready(self) -> bool:
        """True if all sidecars and app containers run."""
        serving = [each for each in self.containers.values() if each.kind != INIT]
        return not self.final and all(each.is_running for each in serving)


def build_lost_state(pod: Manifest, state: PodState | None, now: float) -> PodState:
    """Return the final state of a lost pod; for running containers, the reason is `ContainerStatusUnknown`.

    A pod is lost if its shim ended before its containers. `state` is the last state that the shim wrote.
    """
    containers = state.containers if state else {}
    return PodState(
        since=state.since if state else now,
        final=True,
        reason="NodeLost",
        message=format_node_lost(get_node_name(pod), get_name(pod)),
        containers={name: _with_unknown_end(each, now) for name, each in containers.items()},
    )


def _with_unknown_end(state: ContainerState, now: float) -> ContainerState:
    if state.running_since is None:
        return msgspec.structs.replace(state, waiting=None if state.ended else state.waiting)
    end = TerminatedState(
        exit_code=137,
        reason="ContainerStatusUnknown",
        message="The container could not be located when the pod was terminated",
        started=state.running_since,
        finished=now,
    )
    return msgspec.structs.replace(state, running_since=None, ended=end, previous=state.ended)


def compute_phase(state: PodState) -> str:
    """Return the pod's phase: Pending until all init containers succeeded and all app containers started."""
    apps = [each for each in state.containers.values() if each.kind == APP]
    if state.final and apps and not state.reason and all(each.has_succeeded for each in apps):
        return "Succeeded"
    if state.final:
        return "Failed"
    waited_for = _list_failing_names(state, _is_initialized, kinds=(INIT, APP))
    return "Pending" if waited_for else "Running"


def build_status(pod: Manifest, state: PodState, before: Manifest, now: float) -> Manifest:
    """Build the `PodStatus` from `state`. `before` is the previous status.

    A condition keeps its transition time if its status is the same in `before`.
    """
    spec = get_mapping(pod, "spec")
    texts = {"reason": state.reason, "message": state.message}
    inits = [_build_container_status(each, state) for each in get_mappings(spec, "initContainers")]
    return {
        "phase": compute_phase(state),
        **{key: value for key, value in texts.items() if value},
        "conditions": [_with_transition_time(each, before, now) for each in _build_conditions(state)],
        "hostIP": LOOPBACK,
        "podIP": LOOPBACK,
        "podIPs": [{"ip": LOOPBACK}],
        "startTime": _format_time(state.since),
        **({"initContainerStatuses": inits} if inits else {}),
        "containerStatuses": [
            _build_container_status(each, state) for each in get_mappings(spec, "containers")
        ],
    }


def _format_time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, timezone.utc))


def _build_container_status(container: Manifest, pod: PodState) -> Manifest:
    name = get_text(container, "name")
    state = pod.containers.get(name, ContainerState(kind=APP))
    is_initializing = any(each.kind != APP for each in pod.containers.values())
    now, last = _build_states(state, "PodInitializing" if is_initializing else "ContainerCreating")
    done = state.kind == INIT and state.has_succeeded
    return {
        "name": name,
        "image": get_text(container, "image"),
        "imageID": "",
        "ready": done or (state.kind != INIT and state.is_running),
        "started": state.is_running,
        "restartCount": state.restarts,
        "state": now,
        "lastState": last,
    }


def _build_states(state: ContainerState, why: str) -> tuple[Manifest, Manifest]:
    ended = {"terminated": state.ended.as_json()} if state.ended else {}
    if state.running_since is not None:
        return {"running": {"startedAt": _format_time(state.running_since)}}, ended
    if state.waiting is not None:
        reason, message = state.waiting
        return {"waiting": {"reason": reason, "message": message}}, ended
    if ended:
        return ended, {"terminated": state.previous.as_json()} if state.previous else {}
    return {"waiting": {"reason": why}}, {}


def _build_conditions(state: PodState) -> list[Manifest]:
    initializing = _list_failing_names(state, _is_initialized, kinds=(INIT, SIDECAR))
    unready = _list_failing_names(state, lambda each: each.is_running, kinds=(SIDECAR, APP))
    ended = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(compute_phase(state), "")
    ready, begun = {"status": "True"}, {"status": "True"}
    if ended:
        ready = {"status": "False", "reason": ended}
    elif unready:
        message = f"containers with unready status: [{' '.join(unready)}]"
        ready = {"status": "False", "reason": "ContainersNotReady", "message": message}
    if initializing:
        message = f"containers with incomplete status: [{' '.join(initializing)}]"
        begun = {"status": "False", "reason": "ContainersNotInitialized", "message": message}
    return [
        {"type": "Initialized", **begun},
        {"type": "ContainersReady", **ready},
        {"type": "Ready", **ready},
    ]


def _is_initialized(state: ContainerState) -> bool:
    return state.has_succeeded if state.kind == INIT else state.has_started


def _list_failing_names(
    state: PodState, good: Callable[[ContainerState], bool], *, kinds: Sequence[str]
) -> list[str]:
    return [name for name, each in state.containers.items() if each.kind in kinds and not good(each)]


def _with_transition_time(condition: Manifest, before: Manifest, now: float) -> Manifest:
    last = find_condition(get_mappings(before, "conditions"), get_text(condition, "type"))
    same = get_text(last, "status") == condition["status"] and get_text(last, "lastTransitionTime")
    return {**condition, "lastTransitionTime": same or _format_time(now)}
