"""Decides which containers of a pod to start, and when, by the rules of Kubernetes. Pure."""

from __future__ import annotations

INIT, SIDECAR, APP = "init", "sidecar", "app"


class RunExit:
    """The termination of a container run."""

    def __init__(
        self, exit_code: int, reason: str, started: float, finished: float, message: str = ""
    ) -> None:
        self.exit_code, self.reason, self.message = exit_code, reason, message
        self.started, self.finished = started, finished

    def as_json(self) -> dict[str, object]:
        """Return the fields of the termination by name."""
        return {**vars(self)}


class RestartTimer:
    """The delay before the next restart of a container; see `options.RestartBackoff`."""

    def __init__(self, first: float, most: float, forget: float) -> None:
        self.first, self.most, self.forget = first, most, forget
        self.delay = 0.0
        self.since = 0.0

    def get_restart_time(self, ended: float) -> float:
        """Return the time at which a container that terminated at `ended` may restart."""
        return ended if ended - self.since > self.forget else ended + self.delay

    def record_restart(self, ended: float, now: float) -> None:
        """Record a restart at `now` of a container that terminated at `ended`, and compute the next delay."""
        fresh = self.delay == 0 or ended - self.since > self.forget
        self.delay = self.first if fresh else min(2 * self.delay, self.most)
        self.since = now


class ContainerLifecycle:
    """The state of a container over all its runs."""

    def __init__(self, name: str, kind: str, policy: str, back_off: RestartTimer) -> None:
        self.name, self.kind, self.policy, self.back_off = name, kind, policy, back_off
        self.blocked: tuple[str, str] | None = None
        """The reason and message of an error that prevents the start."""
        self.running_since: float | None = None
        self.ended: RunExit | None = None
        self.previous: RunExit | None = None
        self.waiting: tuple[str, str] | None = None
        self.restarts = 0

    @property
    def is_done(self) -> bool:
        """True if the container has terminated and will not restart."""
        if self.running_since is not None or self.ended is None:
            return False
        return self.policy == "Never" or (self.policy == "OnFailure" and self.ended.exit_code == 0)

    @property
    def has_failed(self) -> bool:
        """True if the container has terminated with an error and will not restart."""
        return self.is_done and self.ended is not None and self.ended.exit_code != 0

    @property
    def has_run(self) -> bool:
        """True if the container runs or has run. A failed start does not count."""
        return self.running_since is not None or (self.ended is not None and self.ended.started > 0)

    @property
    def is_blocking(self) -> bool:
        """True if the next container waits for this init container to end, or for this sidecar to start."""
        return (self.kind == INIT and not self.is_done) or (self.kind == SIDECAR and not self.has_run)

    def as_json(self) -> dict[str, object]:
        """Return the state of the container as JSON values, for the kubelet of the embedded cluster."""
        return {
            "kind": self.kind,
            "done": self.is_done,
            "waiting": list(self.waiting) if self.waiting else None,
            "running_since": self.running_since,
            "ended": self.ended.as_json() if self.ended else None,
            "previous": self.previous.as_json() if self.previous else None,
            "restarts": self.restarts,
        }


class PodLifecycle:
    """The states of a pod's containers in the order of its manifest; selects the containers to start next."""

    def __init__(self, name: str, containers: list[ContainerLifecycle]) -> None:
        self.name = name
        """The name of the pod as in messages of the kubelet: ``name_namespace(uid)``."""
        self.containers = containers
        self.stopping = False
        """True if the pod is stopping: no further container starts."""
        self.wake_at: float | None = None
        """The time at which the next restart delay of a container ends; None if no container waits."""

    @property
    def is_finished(self) -> bool:
        """True if all app containers are done, or an init container has failed and does not restart."""
        failed = any(each.kind == INIT and each.has_failed for each in self.containers)
        return failed or all(each.is_done for each in self.containers if each.kind == APP)

    def select_due(self, now: float) -> list[ContainerLifecycle]:
        """Return the containers to start at `now`, and set the waiting reasons of the others."""
        self.wake_at = None
        if self.stopping or self.is_finished:
            return []
        found = []
        for each in self.containers:
            if self._can_start(each, now):
                found.append(each)
            if each.is_blocking:
                break
        return found

    def _can_start(self, each: ContainerLifecycle, now: float) -> bool:
        if each.running_since is not None or each.is_done:
            return False
        if each.blocked:
            each.waiting = each.blocked
            return False
        if each.ended is None:
            return True
        at = each.back_off.get_restart_time(each.ended.finished)
        if at <= now:
            return True
        self.wake_at = at if self.wake_at is None else min(at, self.wake_at)
        description = (
            f"back-off {format_duration(each.back_off.delay)} restarting failed container={each.name}"
        )
        each.waiting = ("CrashLoopBackOff", f"{description} pod={self.name}")
        return False


def record_start(container: ContainerLifecycle, now: float) -> None:
    """Store the start of the container at `now` in its state; count a restart if an earlier run has ended."""
    container.waiting = None
    if container.ended is not None:
        container.back_off.record_restart(container.ended.finished, now)
        container.restarts += 1
    container.running_since = now


def record_exit(container: ContainerLifecycle, end: RunExit) -> None:
    """Store the termination of the current run in the state of the container."""
    container.previous = container.ended
    container.ended = end
    container.running_since = None
    container.waiting = None


def prevent_starts(pod: PodLifecycle) -> None:
    """Prevent further starts of containers. A container that waits for its restart stays terminated."""
    pod.stopping = True
    for each in pod.containers:
        if each.ended is not None:
            each.waiting = None


def format_node_lost(node: str, pod: str) -> str:
    """Return the message for a pod whose node is lost."""
    return f"Node {node} which was running pod {pod} is unresponsive"


def format_duration(seconds: float) -> str:
    """Return a duration as Go prints it: ``40s``, ``1m20s``, ``5m0s``."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"
