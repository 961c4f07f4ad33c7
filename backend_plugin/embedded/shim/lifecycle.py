"""What is to be started in a pod, and when: init containers in turn, restarts with back-off, the end.

PURE: the clock is handed in. Lives here: Kubernetes' rules. Does not: processes, see `container`.
"""

from __future__ import annotations

INIT, SIDECAR, APP = "init", "sidecar", "app"


class Ended:
    """How a run of a container ended."""

    __slots__ = ("exit_code", "finished", "message", "reason", "started")

    def __init__(self, exit_code: int, reason: str, started: float, finished: float) -> None:
        self.exit_code = exit_code
        self.reason = reason
        self.message = ""
        self.started = started
        self.finished = finished

    def as_json(self) -> dict[str, object]:
        """Its fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


class BackOff:
    """How long to wait before a container that ended is started again.

    The first restart is at once; then `first` seconds after its end, twice as long each time, `most` at
    most; and from the beginning for a container that was last started more than `forget` seconds before.
    """

    __slots__ = ("delay", "first", "forget", "most", "since")

    def __init__(self, first: float, most: float, forget: float) -> None:
        self.first, self.most, self.forget = first, most, forget
        self.delay = 0.0
        self.since = 0.0

    def until(self, ended: float) -> float:
        """When a container that ended at `ended` may be started again."""
        return ended if ended - self.since > self.forget else ended + self.delay

    def count(self, ended: float, now: float) -> None:
        """It is started again, now."""
        fresh = self.delay == 0 or ended - self.since > self.forget
        self.delay = self.first if fresh else min(2 * self.delay, self.most)
        self.since = now


class Container:
    """What is known of a container, over all its runs."""

    __slots__ = (
        "back_off",
        "blocked",
        "cpu_seconds",
        "ended",
        "kind",
        "memory_peak",
        "name",
        "policy",
        "previous",
        "restarts",
        "running_since",
        "waiting",
    )

    def __init__(self, name: str, kind: str, policy: str, back_off: BackOff) -> None:
        self.name = name
        self.kind = kind
        self.policy = policy
        self.back_off = back_off
        self.blocked: list[tuple[float, str, str]] = []
        """Why it can never start, each with the seconds after which it is said."""
        self.running_since: float | None = None
        self.ended: Ended | None = None
        self.previous: Ended | None = None
        self.waiting: tuple[str, str] | None = None
        self.restarts = 0
        self.cpu_seconds = 0.0
        self.memory_peak = 0

    @property
    def is_done(self) -> bool:
        """It has ended and will not be started again."""
        if self.running_since is not None or self.ended is None:
            return False
        return self.policy == "Never" or (self.policy == "OnFailure" and self.ended.exit_code == 0)

    @property
    def has_run(self) -> bool:
        """It runs, or did: what could not be started never began."""
        return self.running_since is not None or (self.ended is not None and self.ended.started > 0)

    def as_json(self) -> dict[str, object]:
        """What the server is told."""
        return {
            "kind": self.kind,
            "done": self.is_done,
            "waiting": list(self.waiting) if self.waiting else None,
            "running_since": self.running_since,
            "ended": self.ended.as_json() if self.ended else None,
            "previous": self.previous.as_json() if self.previous else None,
            "restarts": self.restarts,
            "cpu_seconds": round(self.cpu_seconds, 3),
            "memory_peak": self.memory_peak,
        }


class Pod:
    """A pod's containers, in the order of its manifest."""

    __slots__ = ("containers", "name", "stopping", "wake_at")

    def __init__(self, name: str, containers: list[Container]) -> None:
        self.name = name
        """As the kubelet writes it: ``name_namespace(uid)``."""
        self.containers = containers
        self.stopping = False
        """Nothing is started any more."""
        self.wake_at: float | None = None
        """When `due` would say something else, though nothing happened."""

    @property
    def apps(self) -> list[Container]:
        """Those that the pod is there for."""
        return [each for each in self.containers if each.kind == APP]

    @property
    def is_finished(self) -> bool:
        """Nothing is left to do: all app containers are done, or an init container has failed for good."""
        failed = any(
            each.kind == INIT and each.is_done and each.ended and each.ended.exit_code
            for each in self.containers
        )
        return failed or all(each.is_done for each in self.apps)

    def due(self, since: float, now: float) -> list[Container]:
        """Those to be started now, after which it is to be asked again; the pod came at `since`.

        Says of the others why they wait.
        """
        self.wake_at = None
        if self.stopping or self.is_finished:
            return []
        found = []
        for each in self.containers:
            if each.running_since is None and not each.is_done and self._may_start(each, since, now):
                found.append(each)
            # A sidecar has only to have been started before the next one; others have to be done.
            if (each.kind == INIT and not each.is_done) or (each.kind == SIDECAR and not each.has_run):
                break
        return found

    def _may_start(self, each: Container, since: float, now: float) -> bool:
        if each.blocked:
            self._say_blocked(each, since, now)
            return False
        if each.ended is None:
            return True
        at = each.back_off.until(each.ended.finished)
        if at <= now:
            return True
        self._wake(at)
        said = f"back-off {duration(each.back_off.delay)} restarting failed container={each.name}"
        each.waiting = ("CrashLoopBackOff", f"{said} pod={self.name}")
        return False

    def _say_blocked(self, each: Container, since: float, now: float) -> None:
        for after, reason, message in each.blocked:
            if since + after <= now:
                each.waiting = (reason, message)
            else:
                self._wake(since + after)

    def _wake(self, at: float) -> None:
        self.wake_at = at if self.wake_at is None else min(at, self.wake_at)


def started(container: Container, now: float) -> None:
    """It runs."""
    container.waiting = None
    if container.ended is not None:
        container.back_off.count(container.ended.finished, now)
        container.restarts += 1
    container.running_since = now


def ended(container: Container, end: Ended) -> None:
    """Its run has ended."""
    container.previous = container.ended
    container.ended = end
    container.running_since = None
    container.waiting = None


def stop(pod: Pod) -> None:
    """Start nothing any more; what waits to be started again has ended."""
    pod.stopping = True
    for each in pod.containers:
        if each.ended is not None:
            each.waiting = None


def node_lost(node: str, pod: str) -> str:
    """What is said of a pod whose node is lost, whoever says it."""
    return f"Node {node} which was running pod {pod} is unresponsive"


def duration(seconds: float) -> str:
    """A duration as Go prints it: ``40s``, ``1m20s``, ``5m0s``."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"
