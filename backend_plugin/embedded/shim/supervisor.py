"""Runs the containers of a pod: handles terminations, memory limits, deadlines and stop commands."""

from __future__ import annotations

import os
import signal
import time

from backend_plugin.embedded.shim import lifecycle
from backend_plugin.embedded.shim.container import ContainerRun
from backend_plugin.embedded.shim.lifecycle import ContainerLifecycle, PodLifecycle, RestartTimer, RunExit
from backend_plugin.embedded.shim.process_tree import ProcessTree, send_signal
from backend_plugin.embedded.shim.program import CannotStart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from backend_plugin.embedded.shim.main import Shim

    Spec = dict[str, Any]

# The interval of memory samples, which may use 2 % of a core at most.
_SAMPLE_SECONDS = 0.25
_LOOKING_SHARE = 50
# The delay before the next check whether killed processes have ended.
_SWEEP_SECONDS = 0.005

# The kernel's list of children may omit a process while another one ends, so read the list twice.
_LIST_TRIES = 2

_TOO_LONG = "Pod was active on the node longer than the specified deadline"


class Supervisor:
    """Runs the containers of a pod. Call `advance` after each event, and at the Unix time `wake_at`."""

    def __init__(self, launch: Spec, directory: str, tree: ProcessTree, streams: Shim) -> None:
        self.launch = launch
        self.since = time.time()
        self.reason = self.message = ""
        """The reason and the message if the whole pod was stopped, for example because of its deadline."""
        self.changed = True
        """True if the result of `as_json` has changed since its last call."""
        self.is_over = False
        """True if all containers have ended and no process remains."""
        self.gate_is_open = False
        self.runs: dict[str, ContainerRun] = {}
        self._specs: dict[str, Spec] = {each["name"]: each for each in launch["containers"]}
        self._pod = PodLifecycle(
            launch["pod"], [_build_container(each, launch) for each in launch["containers"]]
        )
        self._containers = {each.name: each for each in self._pod.containers}
        self._directory = directory
        self._tree = tree
        self._streams = streams
        self._gates: dict[str, float] = {}
        self._kill_at: float | None = None
        self._sweep_at: float | None = None
        self._sample_at = float("inf")
        self._again_at: float | None = None

    @property
    def wake_at(self) -> float | None:
        """The time of the next call of `advance` if no event occurs before; None if no call is needed."""
        deadline = self.launch["deadline"]
        wakes = [self._kill_at, self._sweep_at, self._pod.wake_at, self._again_at, *self._gates.values()]
        if self._list_limited_runs():
            wakes.append(self._sample_at)
        if deadline is not None and not self._pod.stopping:
            wakes.append(self.since + deadline)
        return min((each for each in wakes if each is not None), default=None)

    def advance(self) -> None:
        """Do the work that is due: start and stop containers, record ended ones, and enforce limits."""
        now = time.time()
        self._sweep_at = self._again_at = None
        deadline = self.launch["deadline"]
        if deadline is not None and now >= self.since + deadline:
            self.expire_pod()
        self._check_gates(now)
        self._check_runs(now)
        if self._pod.is_finished:
            self.stop_pod(self.launch["grace"])
        self._start_due()
        if now >= self._sample_at:
            self._sample_memory(now)
        if self._pod.stopping:
            self._advance_stop(now)
            self._check_end(now)

    def _start_due(self) -> None:
        waits = [each.waiting for each in self._pod.containers]
        for each in self._pod.select_due(time.time()):
            self._start_container(each)
        self.changed = self.changed or waits != [each.waiting for each in self._pod.containers]

    def stop_pod(self, grace: float, reason: str = "", message: str = "") -> None:
        """End all containers within `grace` seconds. A later call can only shorten the time."""
        at = time.time() + grace
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)
        if self._pod.stopping:
            return
        self.reason, self.message = reason, message
        self.changed = True
        lifecycle.prevent_starts(self._pod)
        for run in self._select_first_to_stop() if grace > 0 else ():
            run.terminate()

    def expire_pod(self) -> None:
        """End all containers because the deadline of the pod has passed."""
        self.stop_pod(self.launch["grace"], "DeadlineExceeded", _TOO_LONG)

    def reap_children(self) -> None:
        """Reap all ended child processes, and store the wait status of the first process of a container."""
        owners = {run.pid: run for run in self.runs.values()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in owners:
                owners[pid].status = status

    def as_json(self) -> Spec:
        """Return the state of the pod and its containers, which the kubelet of the embedded cluster reads."""
        self.changed = False
        return {
            "since": self.since,
            "final": self.is_over,
            "reason": self.reason,
            "message": self.message,
            "containers": {each.name: each.as_json() for each in self._pod.containers},
        }

    def _start_container(self, container: ContainerLifecycle) -> None:
        self._again_at = now = time.time()
        spec = self._specs[container.name]
        lifecycle.record_start(container, now)
        self.changed = True
        if spec["gate"] is not None:
            self._gates[container.name] = now + spec["gate"]
            return
        try:
            run = ContainerRun(spec, container.restarts, self._directory)
        except (CannotStart, OSError) as wrong:
            prefix = "failed to create containerd task: " if isinstance(wrong, OSError) else ""
            # As in containerd, a container that could not be created has no start time.
            self._record_exit(container, RunExit(128, "StartError", 0, time.time(), f"{prefix}{wrong}"))
        else:
            self.runs[container.name] = run
            self._sample_at = min(self._sample_at, now + _SAMPLE_SECONDS)
            self._streams.start_reading(run)

    def _check_gates(self, now: float) -> None:
        for name, until in list(self._gates.items()):
            code = self._find_gate_exit(is_expired=now >= until)
            if code is not None:
                del self._gates[name]
                container = self._containers[name]
                began = container.running_since or now
                end = RunExit(code, "Error" if code else "Completed", began, time.time())
                self._record_exit(container, end)

    def _find_gate_exit(self, *, is_expired: bool) -> int | None:
        """Return the exit code of the init container that waits for the job's leader; None while it waits."""
        if self._pod.stopping:
            return 137
        if self.gate_is_open:
            return 0
        return 1 if is_expired else None

    def _check_runs(self, now: float) -> None:
        for run in [each for each in self.runs.values() if each.status is not None]:
            left = send_signal(self._list_processes([run.name]), signal.SIGKILL)
            if left:
                self._sweep_at = now + _SWEEP_SECONDS
                continue
            self._streams.stop_reading(run)
            run.close()
            del self.runs[run.name]
            self._record_exit(self._containers[run.name], run.build_exit())

    def _record_exit(self, container: ContainerLifecycle, end: RunExit) -> None:
        lifecycle.record_exit(container, end)
        self.changed = True
        # Call `advance` again after other events, to determine the next action.
        self._again_at = end.finished

    def _advance_stop(self, now: float) -> None:
        if self._kill_at is not None and now >= self._kill_at:
            send_signal([run.pid for run in self.runs.values() if run.status is None], signal.SIGKILL)
            self._kill_at = None
        elif not self._select_first_to_stop():
            for run in self.runs.values():
                run.terminate()

    def _check_end(self, now: float) -> None:
        if not self.runs and not self._gates:
            left = send_signal(self._list_processes([*self._containers, ""]), signal.SIGKILL)
            self._sweep_at = now + _SWEEP_SECONDS if left else None
            self.is_over = not left
            self.changed = self.changed or self.is_over

    def _select_first_to_stop(self) -> list[ContainerRun]:
        """Return the container runs to stop first: all except sidecars."""
        return [run for run in self.runs.values() if self._containers[run.name].kind != lifecycle.SIDECAR]

    def _list_limited_runs(self) -> list[ContainerRun]:
        return [run for run in self.runs.values() if run.spec["memory"] is not None]

    def _sample_memory(self, now: float) -> None:
        limited = self._list_limited_runs()
        owners = self._map_processes() if limited else {}
        for run in limited:
            limit, pids = run.spec["memory"], [pid for pid, owner in owners.items() if owner == run.name]
            if run.status is None and self._tree.measure_memory(pids, limit) > limit:
                run.out_of_memory = True
                send_signal(pids, signal.SIGKILL)
        self._sample_at = now + max(_SAMPLE_SECONDS, _LOOKING_SHARE * (time.time() - now))

    def _list_processes(self, names: list[str]) -> list[int]:
        """Return the pids of live processes of these containers; "" stands for an unknown container."""
        found: list[int] = []
        for _ in range(_LIST_TRIES):
            found = found or [pid for pid, owner in self._map_processes().items() if owner in names]
        return found

    def _map_processes(self) -> dict[int, str]:
        main_pids = {run.pid: run.name for run in self.runs.values() if run.status is None}
        return self._tree.map_members(main_pids, list(self.runs))


def _build_container(spec: Spec, launch: Spec) -> ContainerLifecycle:
    container = ContainerLifecycle(
        spec["name"], spec["kind"], spec["policy"], RestartTimer(*launch["back_off"])
    )
    container.blocked = spec["blocked"] and tuple(spec["blocked"])
    return container
