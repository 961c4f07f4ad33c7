"""The observed state of the cluster by namespace and the time of its last change, read from three watches."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from rig.api import Manifest
from rig.control_plane import ADMIN, ControlPlane

_JOBS: Final = "/apis/kubeflow.org/v1/pytorchjobs"
_PODS: Final = "/api/v1/pods"
_SERVICES: Final = "/api/v1/services"
_GONE: Final = "DELETED"
# The timeout of a watch in seconds; watches are short so that the threads can stop.
_WATCH: Final = "2"
_TIMES: Final = ("startTime", "completionTime")


@dataclass
class Stage:
    """The observed state of one namespace, in which one history is played."""

    job: Manifest | None = None
    last_status: Manifest | None = None
    """The last status of a deleted job."""
    uid: str = ""
    """The uid of the last job."""
    pods: dict[str, Manifest] = field(default_factory=dict)
    services: dict[str, Manifest] = field(default_factory=dict)
    incarnations: dict[str, int] = field(default_factory=dict)
    times: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in _TIMES})
    changes: int = 0
    changed_at: float = field(default_factory=time.monotonic)

    def change(self) -> None:
        """Record that the state changes or is about to change."""
        self.changes += 1
        self.changed_at = time.monotonic()

    def take_job(self, kind: str, job: Manifest) -> None:
        status = job.get("status", {})
        for name in _TIMES:
            if status.get(name) and status[name] not in self.times[name]:
                self.times[name].append(status[name])
        self.uid = job["metadata"]["uid"]
        self.job = None if kind == _GONE else job
        if kind == _GONE:
            self.last_status = status

    def take_pod(self, kind: str, pod: Manifest) -> None:
        name = pod["metadata"]["name"]
        if kind == "ADDED":
            self.incarnations[name] = self.incarnations.get(name, 0) + 1
        _update_objects(self.pods, kind, pod)

    def take_service(self, kind: str, service: Manifest) -> None:
        _update_objects(self.services, kind, service)


def _update_objects(objects: dict[str, Manifest], kind: str, manifest: Manifest) -> None:
    if kind == _GONE:
        objects.pop(manifest["metadata"]["name"], None)
    else:
        objects[manifest["metadata"]["name"]] = manifest


class Mirror:
    """A context manager that runs the watches."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._stages: dict[str, Stage] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        watched = ((_JOBS, Stage.take_job), (_PODS, Stage.take_pod), (_SERVICES, Stage.take_service))
        self._threads = [threading.Thread(target=self._follow, args=each, daemon=True) for each in watched]

    def __enter__(self) -> "Mirror":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()

    def open(self, namespace: str) -> None:
        """Start recording a namespace. Call it before the namespace has objects."""
        with self._lock:
            self._stages[namespace] = Stage()

    @contextlib.contextmanager
    def stage(self, namespace: str) -> Iterator[Stage]:
        """Yield the state of a namespace while holding the lock."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            yield self._stages[namespace]

    def build_stage(self, namespace: str) -> Stage:
        """Return a copy of the state of a namespace."""
        with self.stage(namespace) as stage:
            mappings = {name: dict(getattr(stage, name)) for name in ("pods", "services", "incarnations")}
            return replace(stage, **mappings, times={name: [*times] for name, times in stage.times.items()})

    def _follow(self, path: str, take: Callable[[Stage, str, Manifest], None]) -> None:
        api = self._plane.api(ADMIN)
        try:
            listed = api.get(path)
            assert listed is not None
            version = listed["metadata"]["resourceVersion"]
            while not self._closing.is_set():
                for event in api.watch(path, resourceVersion=version, timeoutSeconds=_WATCH):
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._apply_change(event["type"], event["object"], take)
        except Exception as error:  # noqa: BLE001 - raised again by `stage`
            self._failure = error
        finally:
            api.close()

    def _apply_change(
        self, kind: str, manifest: Manifest, take: Callable[[Stage, str, Manifest], None]
    ) -> None:
        with self._lock:
            stage = self._stages.get(manifest["metadata"]["namespace"])
            if stage is not None:
                manifest["metadata"].pop("managedFields", None)
                take(stage, kind, manifest)
                stage.change()
