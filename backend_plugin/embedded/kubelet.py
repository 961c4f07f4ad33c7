"""Pods as process groups of this machine: started, watched, ended, found again.

Lives here: which pods there are, and who is told what of them. Does not: what a pod runs (`pod_launch`), how
(`shim`), what its state amounts to (`pod_status`), its files (`pod_directory`, `pod_logs`).
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from backend_plugin.core.reading import entries, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import pod_logs, pod_status
from backend_plugin.embedded.kubelet_options import KubeletOptions, Machine
from backend_plugin.embedded.leftovers import kill_leftovers
from backend_plugin.embedded.pod_directory import PodDirectory, Shim
from backend_plugin.embedded.pod_launch import Place, gates, launch
from backend_plugin.embedded.pod_status import PodState
from backend_plugin.embedded.shim import layout
from backend_plugin.shell.cluster import LogLine, LogRequest

_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 16
_LABEL = "training.kubeflow.org/"


class Report(Protocol):
    """Who is told what becomes of pods."""

    def status(self, uid: str, status: Manifest) -> None:
        """A pod's status is now this one."""

    def gone(self, uid: str) -> None:
        """Nothing of a pod that was to be terminated lives any more."""


class _Pod:
    """A pod of this node."""

    def __init__(self, manifest: Manifest, directory: PodDirectory) -> None:
        self.manifest = manifest
        self.uid = text(section(manifest, "metadata"), "uid")
        self.directory = directory
        self.shim: Shim | None = None
        self.status = section(manifest, "status")
        self.last: PodState | None = None
        self.is_terminating = False
        self.is_silent = False
        self.is_ended = asyncio.Event()
        self.followers: set[asyncio.Event] = set()

    @property
    def job(self) -> tuple[str, str, str]:
        """What distinguishes its job, also from an earlier one of the same name."""
        metadata = section(self.manifest, "metadata")
        owner = next((text(each, "uid") for each in entries(metadata, "ownerReferences")), "")
        return text(metadata, "namespace"), texts(metadata, "labels").get(_LABEL + "job-name", ""), owner

    @property
    def is_master(self) -> bool:
        """Whether the workers of its job wait for it."""
        labels = texts(section(self.manifest, "metadata"), "labels")
        return labels.get(_LABEL + "replica-type", "").lower() == "master"

    @property
    def lets_in(self) -> bool:
        """Whether workers that wait for it may go on: it may be spoken to, or all has been said.

        In a cluster they would look in vain for a master that ended well before they did, until they fail.
        """
        if self.last is None or self.is_silent:
            return False
        return self.last.is_ready or pod_status.phase(self.last) == "Succeeded"


class Kubelet:
    """The pods of all emulated nodes; one event loop's, never to be shared.

    Args:
        root: The directory of all pods' directories, which nobody else uses.
        options: What the owner of the machine chose.
        report: Who is told; from within the loop, never from within a call.
    """

    def __init__(self, root: Path, options: KubeletOptions, report: Report) -> None:
        self._root = Path(_abspath(root))
        self._options = _absolute(options)
        self._machine = Machine.this(options.pass_env)
        self._report = report
        self._pods: dict[str, _Pod] = {}

    async def run(self, pod: Manifest) -> None:
        """Start a bound pod; nothing happens if it was started before, by whichever server.

        Raises:
            OSError: If this machine cannot have one more now; it may be tried again.
        """
        uid = text(section(pod, "metadata"), "uid")
        if uid in self._pods:
            return
        self._pods[uid] = record = _Pod(pod, PodDirectory.of(self._root, uid))
        try:
            self._begin(record)
        except OSError:
            del self._pods[uid]
            raise
        await asyncio.sleep(0)

    async def adopt(self, pods: Sequence[Manifest]) -> None:
        """Take over what an earlier server has left: of these pods, and of others that are to be no more."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = {text(section(pod, "metadata"), "uid") for pod in pods}
        for path in self._root.iterdir():
            if path.name not in known and path.is_dir():
                await self._abolish(path.name)
        for pod in pods:
            if not _is_over(pod):
                await self.run(pod)

    async def terminate(self, uid: str, grace: float) -> None:
        """Have a pod end within `grace` seconds; its last status and that it is gone are reported."""
        pod = self._pods.get(uid)
        if pod is None or pod.is_ended.is_set():
            _soon(self._report.gone, uid)
            return
        pod.is_terminating = True
        pod.directory.order(layout.TERMINATE, str(grace))

    def lose(self, uids: Sequence[str]) -> None:
        """The node of these pods is lost: they die, and nothing is reported of them any more."""
        for pod in [self._pods[uid] for uid in uids if uid in self._pods]:
            pod.is_silent = True
            self._cut(pod)

    def log(self, uid: str, request: LogRequest) -> AsyncIterator[LogLine]:
        """What a container wrote; nothing if there is no such pod (any more)."""
        return pod_logs.read(_Source(self._root, uid, self._pods.get(uid)), request)

    async def forget(self, uid: str) -> None:
        """Remove the files of a pod; one that still lives is killed first."""
        pod = self._pods.get(uid)
        if pod is not None:
            self.lose([uid])
            await pod.is_ended.wait()
            del self._pods[uid]
        with contextlib.suppress(ValueError):
            await asyncio.to_thread(PodDirectory.of(self._root, uid).remove)

    async def close(self) -> None:
        """End all pods, or if they are durable only leave them."""
        for pod in list(self._pods.values()):
            pod.is_silent = True
            if self._options.durable:
                self._leave(pod)
            else:
                self._cut(pod)
                await pod.is_ended.wait()
        self._pods = {}

    def _begin(self, pod: _Pod) -> None:
        """Start it, or find out what has become of it."""
        if not pod.directory.exists and _has_begun(pod.manifest):
            self._lost(pod)
            return
        pod.directory.make()
        with pod.directory.claim() as lock:
            state = pod.directory.state()
            if lock is None:
                pod.shim = pod.directory.attach()
            elif state is None:
                place = Place(str(pod.directory.path), pod.directory.temporary())
                pod.directory.write(launch(pod.manifest, place, self._options, self._machine))
                pod.shim = pod.directory.start(lock, durable=self._options.durable)
        if pod.shim is None:
            self._end(pod)
            return
        asyncio.get_running_loop().add_reader(pod.shim.wake, self._read, pod)
        self._open_gate(pod)
        self._look(pod)

    def _read(self, pod: _Pod) -> None:
        assert pod.shim is not None, "there is somebody to read from"  # noqa: S101 - for the type checker.
        try:
            news = os.read(pod.shim.wake, _CHUNK)
        except BlockingIOError:
            return
        if not news:
            self._end(pod)
        elif layout.NEWS_STATE in news:
            self._look(pod)
        _wake(pod)

    def _look(self, pod: _Pod) -> None:
        state = pod.directory.state()
        if state is None or state == pod.last:
            return
        let_in, pod.last = pod.lets_in, state
        if not state.final:  # That is told when nothing of it is left, its shim included.
            self._tell(pod)
        if pod.is_master and pod.lets_in is not let_in:
            self._open_gates(pod)

    def _end(self, pod: _Pod) -> None:
        """It has no shim, or no longer one."""
        self._let_go(pod)
        pod.last = pod.directory.state()
        if pod.last is None or not pod.last.final:
            self._lost(pod)
        else:
            self._finish(pod)

    def _lost(self, pod: _Pod) -> None:
        """Its shim was killed: what was below it dies now."""
        kill_leftovers(pod.uid)
        _LOG.warning(
            "the shim of %s has died: %s", pod.directory.path, pod.directory.complaints() or "killed"
        )
        pod.last = pod_status.lost(pod.manifest, pod.last, time.time())
        with contextlib.suppress(FileNotFoundError):
            pod.directory.conclude(msgspec.json.encode(pod.last))
        self._finish(pod)

    def _finish(self, pod: _Pod) -> None:
        pod.is_ended.set()
        _wake(pod)
        self._tell(pod)
        if pod.is_master:
            self._open_gates(pod)
        if pod.is_terminating and not pod.is_silent:
            _soon(self._report.gone, pod.uid)

    def _tell(self, pod: _Pod) -> None:
        if pod.is_silent or pod.last is None:
            return
        status = pod_status.status(pod.manifest, pod.last, pod.status, time.time())
        if status != pod.status:
            pod.status = status
            _soon(self._report.status, pod.uid, status)

    def _open_gates(self, master: _Pod) -> None:
        for pod in self._pods.values():
            if pod.job == master.job and gates(pod.manifest):
                pod.directory.order(layout.GATE, str(int(master.lets_in)))

    def _open_gate(self, pod: _Pod) -> None:
        if gates(pod.manifest):
            masters = [each for each in self._pods.values() if each.is_master and each.job == pod.job]
            pod.directory.order(layout.GATE, str(int(any(each.lets_in for each in masters))))

    async def _abolish(self, uid: str) -> None:
        """A pod that nobody knows of."""
        pod = self._pods[uid] = _Pod({"metadata": {"uid": uid}}, PodDirectory.of(self._root, uid))
        pod.is_silent = True
        pod.directory.make()
        pod.shim = pod.directory.attach()
        if pod.shim is None:
            self._end(pod)
        else:
            asyncio.get_running_loop().add_reader(pod.shim.wake, self._read, pod)
        await self.forget(uid)

    def _cut(self, pod: _Pod) -> None:
        """Kill it, as if its machine had lost its power."""
        if pod.is_ended.is_set() or pod.shim is None:
            return
        if pod.shim.lifeline is None:
            pod.directory.order(layout.TERMINATE, "0")
        else:
            os.close(pod.shim.lifeline)
            pod.shim = dataclasses.replace(pod.shim, lifeline=None)

    def _leave(self, pod: _Pod) -> None:
        if pod.shim is not None and pod.shim.process is not None and not pod.is_ended.is_set():
            # It goes on; the garbage collector should not complain of it.
            pod.shim.process.returncode = 0
        self._let_go(pod)
        pod.is_ended.set()
        _wake(pod)

    def _let_go(self, pod: _Pod) -> None:
        if pod.shim is None:
            return
        asyncio.get_running_loop().remove_reader(pod.shim.wake)
        os.close(pod.shim.wake)
        if pod.shim.lifeline is not None:
            os.close(pod.shim.lifeline)
        if pod.shim.process is not None:
            pod.shim.process.wait()
        pod.shim = None


def _soon(tell: Callable[..., None], *what: object) -> None:
    """Not from within a call of ours."""
    asyncio.get_running_loop().call_soon(tell, *what)


class _Source:
    """A pod's logs, and when there is more of them."""

    def __init__(self, root: Path, uid: str, pod: _Pod | None) -> None:
        self._directory = PodDirectory.of(root, uid)
        self._pod = pod
        self._event = asyncio.Event()

    def logs(self, container: str) -> Path:
        return self._directory.path / layout.LOGS / container

    def state(self) -> PodState | None:
        return self._directory.state()

    async def news(self) -> bool:
        pod = self._pod
        if pod is None or pod.is_ended.is_set():
            return False
        if self._event not in pod.followers:
            pod.followers.add(self._event)
            pod.directory.order(layout.WATCH, "1")
            return True  # What came before we watched.
        await self._event.wait()
        self._event.clear()
        return True

    def close(self) -> None:
        pod = self._pod
        if pod is not None and self._event in pod.followers:
            pod.followers.remove(self._event)
            if not pod.followers:
                pod.directory.order(layout.WATCH, "0")


def _wake(pod: _Pod) -> None:
    for each in pod.followers:
        each.set()


def _absolute(options: KubeletOptions) -> KubeletOptions:
    images = {pattern: venv if venv == "." else _abspath(venv) for pattern, venv in options.images.items()}
    return dataclasses.replace(options, code=Path(_abspath(options.code)), images=images)


def _abspath(path: str | Path) -> str:
    """Links stay as they are: a virtual environment may be one."""
    return os.path.abspath(path)  # noqa: PTH100 - pathlib follows them.


def _is_over(pod: Manifest) -> bool:
    return text(section(pod, "status"), "phase") in ("Succeeded", "Failed")


def _has_begun(pod: Manifest) -> bool:
    return bool(entries(section(pod, "status"), "containerStatuses"))
