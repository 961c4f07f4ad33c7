"""The kubelet's record of a pod, and its source of logs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from backend_plugin.core.reading import entries, section, text, texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import pod_status
from backend_plugin.embedded.controller.objects import JOB_NAME, REPLICA_TYPE
from backend_plugin.embedded.objects import uid_of
from backend_plugin.embedded.pod_directory import PodDirectory, Shim
from backend_plugin.embedded.pod_launch import gates
from backend_plugin.embedded.pod_orders import PodOrders
from backend_plugin.embedded.pod_status import PodState
from backend_plugin.embedded.shim import layout


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
        self.orders = PodOrders(directory, patience, kill=self._kill, abandon=lambda: abandon(self))
        self.uid = uid_of(manifest)
        self.directory = directory
        self.shim: Shim | None = None
        self.status = section(manifest, "status")
        self.last: PodState | None = None
        self.is_terminating = False
        self.is_silent = False
        self.is_ended = asyncio.Event()
        self.followers: set[asyncio.Event] = set()

    @property
    def is_gated(self) -> bool:
        """True if the pod waits for its master."""
        return gates(self.manifest)

    @property
    def job(self) -> tuple[str, str, str]:
        """The namespace, name and owner uid of the job. The uid distinguishes jobs with the same name."""
        metadata = section(self.manifest, "metadata")
        owner = next((text(each, "uid") for each in entries(metadata, "ownerReferences")), "")
        return text(metadata, "namespace"), texts(metadata, "labels").get(JOB_NAME, ""), owner

    @property
    def is_master(self) -> bool:
        """True if this is the master of its job."""
        labels = texts(section(self.manifest, "metadata"), "labels")
        return labels.get(REPLICA_TYPE, "").lower() == "master"

    @property
    def lets_in(self) -> bool:
        """True if this master lets waiting workers start: it is ready or has succeeded.

        In Kubernetes, workers would wait for a master that has already succeeded until they fail.
        """
        if self.last is None or self.is_silent:
            return False
        return self.last.is_ready or pod_status.phase(self.last) == "Succeeded"

    def move_gate(self, master: "PodRecord") -> None:
        """Send the state of the gate to the shim: open if `master` lets workers start."""
        self.orders.give(layout.GATE, str(int(master.lets_in)))

    def _kill(self) -> None:
        if self.shim is not None:
            self.shim.kill(self.directory.path)

    def wake(self) -> None:
        """Wake the clients that follow the logs of this pod."""
        for each in self.followers:
            each.set()


class LogSource:
    """The source from which `pod_logs` reads the logs of a pod."""

    def __init__(self, directory: PodDirectory, pod: PodRecord | None) -> None:
        self._directory = directory
        self._pod = pod
        self._event = asyncio.Event()

    def logs(self, container: str) -> Path:
        """Return the directory with the log files of a container."""
        return self._directory.path / layout.LOGS / container

    def state(self) -> PodState | None:
        """Return the current state of the pod; None if it has not started or was removed."""
        return self._directory.state()

    async def news(self) -> bool:
        """Wait for new lines or a new state. Return False if nothing can follow."""
        pod = self._pod
        if pod is None or pod.is_ended.is_set():
            return False
        if self._event not in pod.followers:
            pod.followers.add(self._event)
            pod.orders.give(layout.WATCH, "1")
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
                pod.orders.give(layout.WATCH, "0")
