"""Many histories at once, each in a namespace of its own.

Lives here: threads, and the operator's restarts, which all histories share. Does not: one history.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rig import operator
from rig.api import Api
from rig.control_plane import ControlPlane
from rig.process import Process, until

from played.mirror import Mirror
from played.player import Player
from played.pulse import Pulse

History = dict[str, Any]
# So many keep the operator's one thread busy, and no step waits much longer for it than for its own second.
AT_ONCE: Final = 64
_PATIENCE: Final = 200


@dataclass(frozen=True)
class Stages:
    """Where histories are played."""

    plane: ControlPlane
    operator: Process
    mirror: Mirror
    pulse: Pulse

    def play(self, histories: Sequence[History]) -> list[History]:
        """Each with what was observed; the operator runs all the time."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda each: self._play(each, _never), histories))

    def play_with_restart(self, histories: Sequence[History]) -> list[History]:
        """The same of histories with one restart each, which all of them have at one time."""
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
            # The operator ends with the thread that starts it, so that is this one.
            self._restart(gate)
        # Who was kept waiting in vain has nothing to tell.
        return [each.result() for each in sorted(plays, key=_waited)]

    def _restart(self, gate: threading.Barrier) -> None:
        try:
            gate.wait()
            self.operator.stop()
            gate.wait()
            gate.wait()
            self.operator.start()
            until(lambda: operator.refuses(self.plane), 60, self.operator.tail)
            gate.wait()
        except threading.BrokenBarrierError:
            # Whoever broke it says why.
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
    """The operator, with a collector of garbage and one of quotas, and nobody who runs a pod."""
    # Its client holds back what it says; with many histories at once that is a queue of its own.
    started = operator.start(plane, "--kube-api-qps=1000", "--kube-api-burst=1000")
    # After the kinds are there, for it looks for new ones only now and then.
    plane.enter(plane.controller_manager)
    with Mirror(plane) as mirror, Pulse(plane, mirror) as pulse:
        yield Stages(plane, started, mirror, pulse)


def _waited(played: Future[History]) -> bool:
    return isinstance(played.exception(), threading.BrokenBarrierError)


def _never(while_down: Callable[[], None]) -> None:
    raise AssertionError("a history in which the operator is restarted is not played with others")
