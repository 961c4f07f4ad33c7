"""The kubelet's record of a pod, and its source of logs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from backend_plugin.core.reading import get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import pod_status
from backend_plugin.embedded.controller.objects import JOB_NAME, REPLICA_TYPE
from backend_plugin.embedded.objects import get_uid
from backend_plugin.embedded.pod_directory import PodDirectory, ShimHandle
from backend_plugin.embedded.pod_launch import has_gate
from backend_plugin.embedded.pod_status import PodState
from backend_plugin.embedded.shim import layout
from backend_plugin.embedded.shim_commands import ShimCommands


class PodRecord:
    """A pod of this node, running or ended."""

    def __init__(
        self,
        manifest: Manifest,
        directory: PodDirectory,
        patience: float,
        abandon: Callable[["PodRecord"], None],
    ) -> None:
        self.manifest = manifest
        self.orders = ShimCommands(directory, patience, kill=self._kill_shim, abandon=lambda: abandon(self))
        self.uid = get_uid(manifest)
        self.directory = directory
        self.shim: ShimHandle | None = None
        self.status = get_mapping(manifest, "status")
        self.last: PodState | None = None
        self.is_terminating = False
        self.is_silent = False
        self.is_ended = asyncio.Event()
        self.followers: set[asyncio.Event] = set()

    @property
    def is_gated(self) -> bool:
        """True if the pod waits for its master."""
        return has_gate(self.manifest)

    @property
    def job(self) -> tuple[str, str, str]:
        """The namespace, name and owner uid of the job. The uid distinguishes jobs with the same name."""
        metadata = get_mapping(self.manifest, "metadata")
        owner = next((get_text(each, "uid") for each in get_mappings(metadata, "ownerReferences")), "")
        return get_text(metadata, "namespace"), get_text_map(metadata, "labels").get(JOB_NAME, ""), owner

    @property
    def is_master(self) -> bool:
        """True if this is the master of its job."""
        labels = get_text_map(get_mapping(self.manifest, "metadata"), "labels")
        return labels.get(REPLICA_TYPE, "").lower() == "master"

    @property
    def is_gate_open(self) -> bool:
        """True if this master lets waiting workers start: it is ready or has succeeded.

        In Kubernetes, workers would wait for a master that has already succeeded until they fail.
        """
        if self.last is None or self.is_silent:
            return False
        return self.last.is_ready or pod_status.compute_phase(self.last) == "Succeeded"

    def send_gate(self, master: "PodRecord") -> None:
        """Send the state of the gate to the shim: open if `master` lets workers start."""
        self.orders.send(layout.GATE, str(int(master.is_gate_open)))

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
        """Wait for new lines or a new state. Return False if nothing can follow."""
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
