"""Detects that the operator has handled all events: it then also handles the events of a separate job."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from rig.api import build_manifest, jobs, pods
from rig.control_plane import ADMIN, ControlPlane

from simulated_operator.mirror import Mirror, Stage

NAMESPACE: Final = "pulse"
_SERVICE: Final = f"/api/v1/namespaces/{NAMESPACE}/services/beating-master-0"
_TICK: Final = 0.05
# The operator's queue is first in, first out: when a beat is handled, so are all earlier events. Two beats
# are necessary, because an event and its result may arrive through different watches.
_BEATS: Final = 2
# The operator retries a conflicting update after some milliseconds, several times.
_QUIET: Final = 0.4
_REMEMBERED: Final = 10_000


class Pulse:
    """A context manager that repeatedly deletes a Service, which the operator creates again."""

    def __init__(self, plane: ControlPlane, mirror: Mirror) -> None:
        self._api = plane.api(ADMIN)
        self._mirror = mirror
        self._began: deque[float] = deque(maxlen=_REMEMBERED)
        """The start times of completed beats."""
        self._failure: BaseException | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        plane.namespace(NAMESPACE)
        mirror.open(NAMESPACE)

    def __enter__(self) -> "Pulse":
        self._api.create(_JOB)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()
        self._api.close()

    def is_settled(self, stage: Stage) -> bool:
        """True if the operator has handled all events of the namespace."""
        if self._failure is not None:
            raise self._failure
        if time.monotonic() - stage.changed_at < _QUIET:
            return False
        newest = list(self._began)[-_BEATS:]
        return len(newest) == _BEATS and newest[0] > stage.changed_at

    def _beat(self) -> None:
        try:
            self._wait_for(lambda: "beating-master-0" in self._mirror.build_stage(NAMESPACE).services)
            number = 0
            while not self._closing.is_set():
                number += 1
                began = time.monotonic()
                self._once(str(number))
                if not self._closing.is_set():
                    self._began.append(began)
        except Exception as error:  # noqa: BLE001 - raised again by `is_settled`
            self._failure = error

    def _once(self, number: str) -> None:
        """Make all three watches of this process and of the operator deliver a change."""
        before = self._mirror.build_stage(NAMESPACE).services["beating-master-0"]["metadata"]["uid"]
        marked = {"metadata": {"annotations": {"beat": number}}}
        for path in (pods(NAMESPACE, "beating-master-0"), jobs(NAMESPACE, "beating")):
            # Without the operator, its webhook cannot admit a change of a job.
            self._wait_for(lambda path=path: self._api.try_patch(path, marked).is_success)
        self._api.delete(_SERVICE)

        def is_back() -> bool:
            stage = self._mirror.build_stage(NAMESPACE)
            service = stage.services.get("beating-master-0")
            marks = [
                (each or {}).get("metadata", {}).get("annotations", {}).get("beat")
                for each in (stage.job, stage.pods.get("beating-master-0"))
            ]
            return service is not None and service["metadata"]["uid"] != before and marks == [number] * 2

        self._wait_for(is_back)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition() and not self._closing.is_set():
            time.sleep(_TICK)


_CONTAINER: Final = {"name": "pytorch", "image": "nothing:1"}
_MASTER: Final = {"replicas": 1, "template": {"spec": {"containers": [_CONTAINER]}}}
_SPEC: Final = {"pytorchReplicaSpecs": {"Master": _MASTER}}
_JOB: Final = build_manifest("kubeflow.org/v1", "PyTorchJob", "beating", NAMESPACE, spec=_SPEC)
