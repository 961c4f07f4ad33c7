"""The kubelet's record of a pod, with the readers that follow its logs."""

import asyncio
from typing import TYPE_CHECKING

from backend_plugin.core.reading import get_mapping
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import pod_status
from backend_plugin.embedded.objects import get_key, get_label, get_owner_uid, get_uid
from backend_plugin.embedded.operators.table import find_pod_operator
from backend_plugin.embedded.pod_directory import PodDirectory
from backend_plugin.embedded.pod_launch import has_gate
from backend_plugin.embedded.shim import layout
from backend_plugin.embedded.shim_process import ShimCommands

if TYPE_CHECKING:
    from backend_plugin.embedded.shim_process import ShimHandle


class PodRecord:
    """The record that the kubelet keeps of one pod, which runs or has ended."""

    def __init__(self, manifest: Manifest, directory: PodDirectory, stop_timeout: float) -> None:
        self.manifest = manifest
        self._operator = find_pod_operator(manifest)
        self.orders = ShimCommands(directory, stop_timeout, self._kill_shim)
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
        """True if this leader of a job is ready or has succeeded, so that the waiting pods may start."""
        if not self.is_leader or self.last is None or self.is_silent:
            return False
        return self.last.is_ready or pod_status.compute_phase(self.last) == "Succeeded"

    def _kill_shim(self) -> None:
        if self.shim is not None:
            self.shim.kill(self.directory.path)

    def wake_followers(self) -> None:
        """Wake the clients that follow the logs of this pod."""
        for each in self.followers:
            each.set()

    async def wait_for_change(self, news: asyncio.Event) -> bool:
        """Wait until the logs or the state change; return False if the pod has ended.

        `news` is the event of one log reader. The first call with it does not wait, because lines before this
        call did not set the event.
        """
        if self.is_ended.is_set():
            return False
        if news not in self.followers:
            self.followers.add(news)
            self.orders.send(layout.WATCH, "1")
            return True
        await news.wait()
        news.clear()
        return True

    def stop_waiting(self, news: asyncio.Event) -> None:
        """Remove the log reader with the event `news`."""
        if news in self.followers:
            self.followers.remove(news)
            if not self.followers:
                self.orders.send(layout.WATCH, "0")
