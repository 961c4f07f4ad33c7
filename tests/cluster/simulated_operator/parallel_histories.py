"""Plays many histories at the same time, each in its own namespace."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rig import operator
from rig.api import Api
from rig.control_plane import ControlPlane
from rig.process import Process, wait_until

from simulated_operator.history_player import Player
from simulated_operator.idle_detection import Pulse
from simulated_operator.mirror import Mirror

History = dict[str, Any]
# Keeps the operator's single worker busy without delaying a step by much more than its own second.
AT_ONCE: Final = 64
_PATIENCE: Final = 200


@dataclass(frozen=True)
class Stages:
    """The cluster in which histories are played."""

    plane: ControlPlane
    operator: Process
    mirror: Mirror
    pulse: Pulse

    def play(self, histories: Sequence[History]) -> list[History]:
        """Play histories without a restart of the operator, and return them with the observed states."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda each: self._play(each, _never), histories))

    def play_with_restart(self, histories: Sequence[History]) -> list[History]:
        """Play histories that contain one restart each, and share one restart of the operator."""
        if not histories:
            return []
        gate = threading.Barrier(len(histories) + 1, timeout=_PATIENCE)

        def restart(while_down: Callable[[], None]) -> None:
            gate.wait()
            gate.wait()
            while_down()
            gate.wait()
            gate.wait()

        def play(history: History) -> History:
            with ExitStack() as undo:
                undo.callback(gate.abort)
                played = self._play(history, restart)
                undo.pop_all()
            return played

        with ThreadPoolExecutor(len(histories)) as pool:
            plays: list[Future[History]] = [pool.submit(play, each) for each in histories]
            # The operator ends with the thread that starts it, so restart it in this thread.
            self._restart(gate)
        # Errors of a broken barrier are only consequences, so raise the other errors first.
        return [each.result() for each in sorted(plays, key=_waited)]

    def _restart(self, gate: threading.Barrier) -> None:
        try:
            gate.wait()
            self.operator.stop()
            gate.wait()
            gate.wait()
            self.operator.start()
            wait_until(lambda: operator.refuses(self.plane), 60, self.operator.tail)
            gate.wait()
        except threading.BrokenBarrierError:
            # The thread that broke the barrier raises the cause.
            if not self.operator.runs:
                self.operator.start()

    def _play(self, history: History, restart: Callable[[Callable[[], None]], None]) -> History:
        namespace = f"h-{history['id']}"
        self.plane.namespace(namespace)
        self.mirror.open(namespace)
        api = Api(self.plane.server, self.plane.authority.certificate, self.plane.admin.token)
        try:
            return Player(api, self.mirror, self.pulse, history, namespace, restart).play()
        finally:
            api.close()


@contextmanager
def stages(plane: ControlPlane) -> Iterator[Stages]:
    """Start the operator and the controllers for garbage collection and quotas, but no kubelet."""
    # The default client rate limit of the operator would delay many parallel histories.
    started = operator.start(plane, "--kube-api-qps=1000", "--kube-api-burst=1000")
    # Start it after the CRDs exist, because it discovers new kinds only at long intervals.
    plane.enter(plane.controller_manager)
    with Mirror(plane) as mirror, Pulse(plane, mirror) as pulse:
        yield Stages(plane, started, mirror, pulse)


def _waited(played: Future[History]) -> bool:
    return isinstance(played.exception(), threading.BrokenBarrierError)


def _never(while_down: Callable[[], None]) -> None:
    raise AssertionError("a history in which the operator is restarted is not played with others")
