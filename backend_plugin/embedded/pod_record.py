"""A pod of this node, as the kubelet knows it between two pieces of news.

Lives here: what is known, and who waits for more. Does not: what is done about it; see `kubelet`.
"""

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
    """A pod, whether or not it lives."""

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
        """Whether it waits for its master."""
        return gates(self.manifest)

    @property
    def job(self) -> tuple[str, str, str]:
        """What distinguishes its job, also from an earlier one of the same name."""
        metadata = section(self.manifest, "metadata")
        owner = next((text(each, "uid") for each in entries(metadata, "ownerReferences")), "")
        return text(metadata, "namespace"), texts(metadata, "labels").get(JOB_NAME, ""), owner

    @property
    def is_master(self) -> bool:
        """Whether the workers of its job wait for it."""
        labels = texts(section(self.manifest, "metadata"), "labels")
        return labels.get(REPLICA_TYPE, "").lower() == "master"

    @property
    def lets_in(self) -> bool:
        """Whether workers that wait for it may go on: it may be spoken to, or all has been said.

        In a cluster they would look in vain for a master that ended well before they did, until they fail.
        """
        if self.last is None or self.is_silent:
            return False
        return self.last.is_ready or pod_status.phase(self.last) == "Succeeded"

    def move_gate(self, master: "PodRecord") -> None:
        """Tell it whether its master lets it in."""
        self.orders.give(layout.GATE, str(int(master.lets_in)))

    def _kill(self) -> None:
        if self.shim is not None:
            self.shim.kill(self.directory.path)

    def wake(self) -> None:
        """Have whoever follows its logs look again."""
        for each in self.followers:
            each.set()


class LogSource:
    """A pod's logs, and when there is more of them."""

    def __init__(self, directory: PodDirectory, pod: PodRecord | None) -> None:
        self._directory = directory
        self._pod = pod
        self._event = asyncio.Event()

    def logs(self, container: str) -> Path:
        """The directory of a container's files."""
        return self._directory.path / layout.LOGS / container

    def state(self) -> PodState | None:
        """What has become of the pod; None: nothing is known (any more)."""
        return self._directory.state()

    async def news(self) -> bool:
        """Wait until there may be more since the last time; False: there never will be."""
        pod = self._pod
        if pod is None or pod.is_ended.is_set():
            return False
        if self._event not in pod.followers:
            pod.followers.add(self._event)
            pod.orders.give(layout.WATCH, "1")
            return True  # What came before we watched.
        await self._event.wait()
        self._event.clear()
        return True

    def close(self) -> None:
        """Nobody waits any more."""
        pod = self._pod
        if pod is not None and self._event in pod.followers:
            pod.followers.remove(self._event)
            if not pod.followers:
                pod.orders.give(layout.WATCH, "0")
