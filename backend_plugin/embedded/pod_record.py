"""The kubelet's record of a pod: sends commands to the shim of the pod, and wakes the readers of its logs."""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from backend_plugin.core.reading import get_mapping
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import pod_status
from backend_plugin.embedded.objects import get_key, get_label, get_owner_uid, get_uid
from backend_plugin.embedded.operators.table import find_pod_operator
from backend_plugin.embedded.pod_directory import PodDirectory
from backend_plugin.embedded.pod_launch import has_gate
from backend_plugin.embedded.shim import layout

if TYPE_CHECKING:
    from backend_plugin.embedded.shim_process import ShimHandle

_LOG = logging.getLogger(__name__)


class PodRecord:
    """The record that the kubelet keeps of one pod, which runs or has ended.

    `stop_timeout` is the number of seconds that the pod may take to end after its grace period. Then its shim
    is killed.
    """

    def __init__(self, manifest: Manifest, directory: PodDirectory, stop_timeout: float) -> None:
        self.manifest = manifest
        self._operator = find_pod_operator(manifest)
        self._stop_timeout = stop_timeout
        self._deadline: asyncio.TimerHandle | None = None
        self.uid = get_uid(manifest)
        self.directory = directory
        self.shim: ShimHandle | None = None
        self.status = get_mapping(manifest, "status")
        self.last: pod_status.PodState | None = None
        self.is_terminating = False
        self.is_silent = False
        self.is_ended = asyncio.Event()
        self.followers: set[asyncio.Event] = set()
        self.is_gated = has_gate(manifest)
        """True if the pod does not start its containers until the leader of its job is ready."""

    @property
    def job(self) -> tuple[str, str, str]:
        """The namespace, name and uid of the pod's job. The uid distinguishes jobs with the same name."""
        name = get_label(self.manifest, self._operator.dialect.labels.job_name)
        return get_key(self.manifest).namespace, name, get_owner_uid(self.manifest)

    @property
    def is_leader(self) -> bool:
        """True if this pod is the leader of its job, for which other pods may wait."""
        role = get_label(self.manifest, self._operator.dialect.labels.role).lower()
        return bool(role) and role == self._operator.leader

    @property
    def is_gate_open(self) -> bool:
        """True if this leader pod of a job is ready or has succeeded, so that the waiting pods may start."""
        if not self.is_leader or self.last is None or self.is_silent:
            return False
        return self.last.is_ready or pod_status.compute_phase(self.last) == "Succeeded"

    def send(self, word: str, value: str = "") -> None:
        """Send the command `word` with the argument `value` to the shim; do nothing after `close`."""
        if not self.is_ended.is_set():
            # Ignore a shim that cannot read: the server kills it if its pod does not end.
            with contextlib.suppress(OSError):
                self.directory.send_command(word, value)

    def terminate(self, grace: float) -> None:
        """End the pod within `grace` seconds."""
        self.send(layout.TERMINATE, str(grace))
        self._check_after(grace + self._stop_timeout)

    def kill(self) -> None:
        """End the pod immediately, as if its node had failed."""
        self.send(layout.LOSE)
        self._check_after(self._stop_timeout)

    def close(self) -> None:
        """Set `is_ended` when the pod has ended or is no longer observed, and wake its log readers."""
        if self._deadline is not None:
            self._deadline.cancel()
        self.is_ended.set()
        self.wake_followers()

    def _check_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self.is_ended.is_set() or (self._deadline is not None and self._deadline.when() <= at):
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = loop.call_at(at, self._check_shim)

    def _check_shim(self) -> None:
        self._deadline = None
        _LOG.warning("the shim of %s does not respond; killing it", self.directory.path)
        try:
            if self.shim is not None:
                self.shim.kill(self.directory.path)
        except OSError as error:  # Too many open files.
            _LOG.warning("%s: %s", self.directory.path, error)
        self._check_after(self._stop_timeout)

    def wake_followers(self) -> None:
        """Wake the clients that follow the logs of this pod."""
        for each in self.followers:
            each.set()

    async def wait_for_change(self, changed: asyncio.Event) -> bool:
        """Wait until the logs or the state of the pod change; return False if the pod has ended.

        `changed` is the event of one log reader. The first call for a reader does not wait, because lines
        that were written before did not set the event.
        """
        if self.is_ended.is_set():
            return False
        if changed not in self.followers:
            self.followers.add(changed)
            self.send(layout.WATCH, "1")
            return True
        await changed.wait()
        changed.clear()
        return True

    def stop_waiting(self, changed: asyncio.Event) -> None:
        """Do not wake the log reader with the event `changed` any more."""
        if changed in self.followers:
            self.followers.remove(changed)
            if not self.followers:
                self.send(layout.WATCH, "0")
