"""The emulated kubelet: starts, observes and ends pods, and takes over the pods of an earlier server.

Each pod has a shim, a separate process that runs its containers; see the package `shim`.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backend_plugin.core.values import Manifest
from backend_plugin.embedded import pod_logs, pod_status, shim_process
from backend_plugin.embedded.objects import get_uid, has_started, is_ended
from backend_plugin.embedded.options import RETRY_SECONDS, EmbeddedOptions, HostInfo
from backend_plugin.embedded.pod_directory import PodDirectory
from backend_plugin.embedded.pod_launch import build_launch
from backend_plugin.embedded.pod_record import PodRecord
from backend_plugin.embedded.pod_status import PodState
from backend_plugin.embedded.shim import files, layout
from backend_plugin.shell.cluster import LogLine, LogRequest

if TYPE_CHECKING:
    from backend_plugin.embedded.pods import PodController

_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 16
_LAST_PATIENCE = 30.0
"""Seconds to wait for the end of a killed pod: a process in uninterruptible disk sleep may never end."""


@contextlib.contextmanager
def _log_os_errors(directory: PodDirectory) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _LOG.error("cannot take over %s: %s", directory.path, error)


class Kubelet:
    """The kubelet of all emulated nodes, for use in one event loop.

    Only this object may use `root`, the directory with the files of all pods. It calls the methods
    `on_status` and `on_terminated` of `report` when the status of a pod changes or a terminating pod ends.
    """

    def __init__(self, root: Path, options: EmbeddedOptions, report: "PodController") -> None:
        # `abspath` does not resolve links: a virtual environment may contain them.
        images = {
            pattern: venv if venv == "." else os.path.abspath(venv)  # noqa: PTH100
            for pattern, venv in options.images.items()
        }
        code = Path(os.path.abspath(options.code))  # noqa: PTH100
        self._root = Path(os.path.abspath(root))  # noqa: PTH100
        self._options = dataclasses.replace(options, code=code, images=images)
        self._machine = HostInfo.from_host(options.pass_env)
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._pods: dict[str, PodRecord] = {}
        # Each shim waits for the end of this pipe, which closes when this process ends.
        self._server_pipe: tuple[int, ...] = () if options.durable else os.pipe()

    async def start_pod(self, pod: Manifest) -> None:
        """Start a pod that is bound to a node, unless this or an earlier server has started it already.

        Raises:
            OSError: If the machine cannot start another pod now. The caller may retry.
        """
        uid = get_uid(pod)
        if uid in self._pods:
            return
        directory = PodDirectory(self._root / uid)
        self._pods[uid] = record = PodRecord(pod, directory, self._options.shim_patience)
        try:
            self._start_or_attach(record)
        except OSError:
            del self._pods[uid]
            raise
        await asyncio.sleep(0)

    async def adopt_pods(self, pods: Sequence[Manifest]) -> Sequence[str]:
        """Take over these pods from an earlier server, and remove the directories of all other pods.

        Returns:
            The uids of pods that cannot be taken over now, because of an OSError.
        """
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        known, failed = set(map(get_uid, pods)), []
        directories = PodDirectory.list_all(self._root)
        self._kill_all_leftovers(pods, directories)
        for directory in directories:
            if directory.path.name not in known:
                await self.remove_pod(directory.path.name)
        for pod in pods:
            failed.append(get_uid(pod))
            directory = PodDirectory(self._root / get_uid(pod))
            with _log_os_errors(directory):
                if not is_ended(pod):
                    await self.start_pod(pod)
                elif directory.path.is_dir():  # The earlier server may have ended before it killed the pod.
                    self._kill_silently(pod, directory)
                failed.pop()
        return failed

    def _kill_all_leftovers(self, pods: Sequence[Manifest], directories: Sequence[PodDirectory]) -> None:
        """Kill the remaining processes of all pods whose shims have ended, with one scan of all processes."""
        running = [get_uid(pod) for pod in pods if has_started(pod) and not is_ended(pod)]
        lost = {uid for uid in running if not PodDirectory(self._root / uid).path.is_dir()}
        for directory in directories:
            with _log_os_errors(directory):
                if directory.is_lost:
                    lost.add(directory.path.name)
        if lost:
            _kill_leftovers(lost)

    async def terminate_pod(self, uid: str, grace: float) -> None:
        """Make a pod end within `grace` seconds; `PodController.on_terminated` is called after its end."""
        pod = self._pods.get(uid)
        if pod is None or pod.is_ended.is_set():
            self._loop.call_soon(self._report.on_terminated, uid)
            return
        pod.is_terminating = True
        pod.terminate(grace)

    async def expire_pod(self, uid: str) -> None:
        """End a running pod within its grace period, as if its `activeDeadlineSeconds` had passed."""
        pod = self._pods.get(uid)
        if pod is not None:
            pod.send(layout.EXPIRE)

    def kill_pods(self, uids: Sequence[str]) -> None:
        """Kill these pods immediately, and report no further status of them, as after a node failure."""
        for pod in [self._pods[uid] for uid in uids if uid in self._pods]:
            pod.is_silent = True
            pod.kill()

    def read_log(self, uid: str, request: LogRequest) -> AsyncIterator[LogLine]:
        """Return the log lines of a container; empty if the pod does not exist."""
        return pod_logs.read_lines(PodDirectory(self._root / uid), self._pods.get(uid), request)

    async def remove_pod(self, uid: str) -> None:
        """Remove the files of a pod. If the pod still runs, kill it first."""
        directory = PodDirectory(self._root / uid)
        with _log_os_errors(directory):
            if uid not in self._pods and directory.path.is_dir():  # An earlier server has started it.
                self._kill_silently({"metadata": {"uid": uid}}, directory)
        if uid in self._pods:
            self.kill_pods([uid])
            await self._wait_until_ended([self._pods[uid]])
            del self._pods[uid]
        await asyncio.to_thread(directory.remove)

    async def close(self) -> None:
        """Kill all pods. With the option `durable`, do not kill them, but stop observing them."""
        pods = list(self._pods.values())
        for pod in pods:
            pod.is_silent = True
            if self._options.durable:
                self._release_pod(pod)
            else:
                pod.kill()
        for fd in self._server_pipe:
            os.close(fd)
        self._server_pipe = ()
        await self._wait_until_ended(pods)
        self._pods = {}

    async def _wait_until_ended(self, pods: Sequence[PodRecord]) -> None:
        """Wait until the pods end. After `_LAST_PATIENCE` seconds, stop observing the remaining pods."""
        waits = [asyncio.create_task(pod.is_ended.wait()) for pod in pods]
        if waits:
            await asyncio.wait(waits, timeout=_LAST_PATIENCE)
        for pod in pods:
            if not pod.is_ended.is_set():
                _LOG.error("%s does not end: one of its processes cannot be killed", pod.directory.path)
                self._release_pod(pod)

    def _start_or_attach(self, pod: PodRecord) -> None:
        """Start a shim for a pod that has never run, attach to a running shim, or read how the pod ended."""
        if not pod.directory.path.is_dir() and has_started(pod.manifest):
            _LOG.warning("the files of %s are gone", pod.uid)
            pod.last = self._conclude_lost_pod(pod, None)
            self._finish_pod(pod)
            return
        pod.directory.create()
        with pod.directory.acquire_lock() as lock:
            state = pod.directory.read_state()
            if lock is None:
                pod.shim = shim_process.attach_shim(pod.directory)
            elif state is None:
                paths = str(pod.directory.path), pod.directory.ensure_tmpdir()
                pod.directory.write_launch(build_launch(pod.manifest, *paths, self._options, self._machine))
                server_pipe = self._server_pipe[0] if self._server_pipe else -1
                pod.shim = shim_process.start_shim(pod.directory, lock, server_pipe)
        if pod.shim is None:
            self._on_shim_exit(pod)
            return
        self._open_gates(pod.job)
        self._watch_shim(pod)

    def _on_wake(self, pod: PodRecord) -> None:
        assert pod.shim is not None, "only pods with a shim are read"  # noqa: S101 - for the type checker.
        try:
            updates = os.read(pod.shim.wake, _CHUNK)
        except BlockingIOError:
            return
        try:
            if not updates:
                self._on_shim_exit(pod)
            elif layout.UPDATE_STATE in updates:
                self._read_state(pod)
        except OSError as error:
            self._retry_later(pod, error)
        pod.wake_followers()

    def _retry_later(self, pod: PodRecord, error: OSError) -> None:
        _LOG.warning("cannot read %s now: %s", pod.directory.path, error)
        if pod.shim is not None:
            self._loop.remove_reader(pod.shim.wake)
            self._loop.call_later(RETRY_SECONDS, self._watch_shim, pod)

    def _watch_shim(self, pod: PodRecord) -> None:
        if pod.shim is None:
            return
        self._loop.add_reader(pod.shim.wake, self._on_wake, pod)
        try:
            self._read_state(pod)
        except OSError as error:
            self._retry_later(pod, error)

    def _read_state(self, pod: PodRecord) -> None:
        state = pod.directory.read_state()
        if state is None or state == pod.last:
            return
        pod.last = state
        if not state.final:  # A final state is reported after the shim has ended.
            self._report_status(pod)
        if pod.is_leader:
            self._open_gates(pod.job)

    def _on_shim_exit(self, pod: PodRecord) -> None:
        """Mark a pod as ended, because its shim has ended.

        Raise OSError, and change nothing, if the state file of the pod cannot be read.
        """
        state = pod.directory.read_state()
        if state is None or not state.final:
            why = pod.directory.read_error_output() or "killed"
            _LOG.warning("the shim of %s has ended: %s", pod.directory.path, why)
            if pod.shim is not None:  # Otherwise, `adopt_pods` has killed the remaining processes.
                _kill_leftovers([pod.uid])
            state = self._conclude_lost_pod(pod, state)
        pod.last = state
        self._close_shim(pod)
        self._finish_pod(pod)

    def _conclude_lost_pod(self, pod: PodRecord, state: PodState | None) -> PodState:
        lost = pod_status.build_lost_state(pod.manifest, state, time.time())
        # If the disk is full, the loss is still reported. The next server finds no shim and derives the same
        # state.
        with contextlib.suppress(OSError):
            files.replace_file(str(pod.directory.path / layout.STATE), msgspec.json.encode(lost))
        return lost

    def _finish_pod(self, pod: PodRecord) -> None:
        pod.close()
        self._report_status(pod)
        if pod.is_leader:
            self._open_gates(pod.job)
        if pod.is_terminating and not pod.is_silent:
            self._loop.call_soon(self._report.on_terminated, pod.uid)

    def _report_status(self, pod: PodRecord) -> None:
        if pod.is_silent or pod.last is None:
            return
        status = pod_status.build_status(pod.manifest, pod.last, pod.status, time.time())
        if status != pod.status:
            pod.status = status
            self._loop.call_soon(self._report.on_status, pod.uid, status)

    def _open_gates(self, job: tuple[str, str, str]) -> None:
        """Start the pods that wait for the leader pod of this job, if the leader is ready or succeeded."""
        pods = [each for each in self._pods.values() if each.job == job]
        if any(each.is_gate_open for each in pods):
            for pod in pods:
                if pod.is_gated:
                    pod.send(layout.GATE)

    def _kill_silently(self, manifest: Manifest, directory: PodDirectory) -> None:
        """Kill the processes of a pod that an earlier server started, and report no status of the pod."""
        self._pods[get_uid(manifest)] = pod = PodRecord(manifest, directory, self._options.shim_patience)
        pod.is_silent = True
        pod.directory.create()
        pod.shim = shim_process.attach_shim(pod.directory)
        if pod.shim is None:
            self._on_shim_exit(pod)
            return
        self._loop.add_reader(pod.shim.wake, self._on_wake, pod)
        pod.kill()

    def _release_pod(self, pod: PodRecord) -> None:
        if pod.shim is not None and pod.shim.process is not None and not pod.is_ended.is_set():
            # The shim keeps running; prevent the ResourceWarning of Popen.
            pod.shim.process.returncode = 0
        self._close_shim(pod)
        pod.close()

    def _close_shim(self, pod: PodRecord) -> None:
        if pod.shim is None:
            return
        self._loop.remove_reader(pod.shim.wake)
        os.close(pod.shim.wake)
        if pod.shim.process is not None:
            pod.shim.process.wait()
        pod.shim = None


def _kill_leftovers(uids: Collection[str]) -> None:
    from backend_plugin.embedded.shim import portable_tree  # It loads psutil, which is slow to import.

    portable_tree.kill_leftovers(uids)
