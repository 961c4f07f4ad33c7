"""The kubelet's record of a pod, and the source of the pod's logs."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from backend_plugin.core.reading import get_mapping
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import pod_status
from backend_plugin.embedded.objects import get_key, get_label, get_owner_uid, get_uid
from backend_plugin.embedded.operators.table import find_pod_operator
from backend_plugin.embedded.pod_directory import PodDirectory
from backend_plugin.embedded.pod_launch import has_gate
from backend_plugin.embedded.pod_status import PodState
from backend_plugin.embedded.shim import layout
from backend_plugin.embedded.shim_process import ShimCommands

if TYPE_CHECKING:
    from backend_plugin.embedded.shim_process import ShimHandle


class PodRecord:
    """The record that the kubelet keeps of one pod, which runs or has ended."""

    def __init__(self, manifest: Manifest, directory: PodDirectory, patience: float) -> None:
        self.manifest = manifest
        self._operator = find_pod_operator(manifest)
        self.orders = ShimCommands(directory, patience, self._kill_shim)
        self.uid = get_uid(manifest)
        self.directory = directory
        self.shim: ShimHandle | None = None
        self.status = get_mapping(manifest, "status")
        self.last: PodState | None = None
        self.is_terminating = False
        self.is_silent = False
        self.is_ended = asyncio.Event()
        self.followers: set[asyncio.Event] = set()
        self.is_gated = has_gate(manifest)
        """True if the pod does not start its containers until the leader of its job is ready."""

    @property
    def job(self) -> tuple[str, str, str]:
        """The namespace, name and owner uid of the job. The uid distinguishes jobs with the same name."""
        name = get_label(self.manifest, self._operator.dialect.labels.job_name)
        return get_key(self.manifest).namespace, name, get_owner_uid(self.manifest)

    @property
    def is_leader(self) -> bool:
        """True if this is the leader of its job, for which other pods may wait."""
        role = get_label(self.manifest, self._operator.dialect.labels.role).lower()
        return bool(role) and role == self._operator.leader

    @property
    def is_gate_open(self) -> bool:
        """True if this leader lets waiting pods start: it is ready or has succeeded.

        In Kubernetes, pods would wait for a leader that has already succeeded until they fail.
        """
        if self.last is None or self.is_silent:
            return False
        return self.last.is_ready or pod_status.compute_phase(self.last) == "Succeeded"

    def send_gate(self, leader: "PodRecord") -> None:
        """Make the shim open its gate (see `layout.GATE`) if that of `leader` is open, else close it."""
        self.orders.send(layout.GATE, str(int(leader.is_gate_open)))

    def _kill_shim(self) -> None:
        if self.shim is not None:
            self.shim.kill(self.directory.path)

    def wake_followers(self) -> None:
        """Wake the clients that follow the logs of this pod."""
        for each in self.followers:
            each.set()


class LogSource:
    """The source from which `pod_logs` reads the logs of a pod."""

    def __init__(self, directory: PodDirectory, pod: PodRecord | None) -> None:
        self._directory = directory
        self._pod = pod
        self._event = asyncio.Event()

    def get_log_directory(self, container: str) -> Path:
        """Return the directory with the log files of a container."""
        return self._directory.path / layout.LOGS / container

    def read_state(self) -> PodState | None:
        """Return the current state of the pod; None if it has not started or was removed."""
        return self._directory.read_state()

    async def wait_for_change(self) -> bool:
        """Wait for new lines or a new state. Return False if the pod does not run."""
        pod = self._pod
        if pod is None or pod.is_ended.is_set():
            return False
        if self._event not in pod.followers:
            pod.followers.add(self._event)
            pod.orders.send(layout.WATCH, "1")
            return True  # There may be lines from before the watch.
        await self._event.wait()
        self._event.clear()
        return True

    def close(self) -> None:
        """Stop observing the pod."""
        pod = self._pod
        if pod is not None and self._event in pod.followers:
            pod.followers.remove(self._event)
            if not pod.followers:
                pod.orders.send(layout.WATCH, "0")
