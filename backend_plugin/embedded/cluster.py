"""The embedded cluster, an implementation of `shell.cluster.Cluster`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from backend_plugin.core.job import OwnerReference
from backend_plugin.core.manifest.names import IDENTITY
from backend_plugin.core.observed import JOB_NAME, Pod, read_pod
from backend_plugin.core.reading import section, text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import admission, file_limit, following, machine, templates
from backend_plugin.embedded.events import Recorder
from backend_plugin.embedded.jobs import Jobs
from backend_plugin.embedded.kubelet import Kubelet
from backend_plugin.embedded.kubelet_options import KubeletOptions
from backend_plugin.embedded.node_commands import Nodes
from backend_plugin.embedded.objects import Key, key_of, label_of, uid_of, with_metadata
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.embedded.pods import Pods
from backend_plugin.embedded.scheduler import Scheduler
from backend_plugin.embedded.state_lock import USABLE, StateUnusable
from backend_plugin.embedded.store import Change, Conflict, Store, system_clock
from backend_plugin.shell.cluster import LogLine, LogRequest, Name, Outdated, Sink, Unavailable

_EXPIRY: Final = 60.0
"""Seconds between two deletions of expired events."""


class EmbeddedCluster:
    """An embedded cluster with its node commands. Create it with `open`, and use it in one event loop."""

    def __init__(self, store: Store, directory: Path, options: EmbeddedOptions) -> None:
        clock = system_clock
        self._loop = asyncio.get_running_loop()
        self._templates = templates.read(options.pod_templates)
        self._store = store
        self._recorder = Recorder(store, options.events, clock)
        self._pods = Pods(
            store, self._recorder, clock, lambda pods: Kubelet(directory / "pods", _of_kubelet(options), pods)
        )
        self._nodes = Nodes(store, self._pods, self._recorder, options=options, clock=clock)
        self._nodes.ensure(machine.nodes(options, directory, clock()))
        self._jobs = Jobs(store, self._pods, self._recorder, backoff=options.backoff, clock=clock)
        self._scheduler = Scheduler(store, self._pods.decide)
        self._expiry = self._loop.call_later(_EXPIRY, self._expire)

    @classmethod
    async def open(cls, state: Path, options: EmbeddedOptions) -> "EmbeddedCluster":
        """Open the cluster in the state directory `state`, and create the directory if it does not exist.

        The jobs of an earlier server continue: pods that still run are adopted, and the others have failed.
        No pod is started twice.

        Raises:
            StateUnusable: If another server uses the directory, or if it cannot be read.
            UnreadableTemplates: If the pod templates cannot be read.
        """
        # Raise the limit of the server only. Pods start with the limit that this process started with.
        had = file_limit.lift()
        options = replace(options, open_files=options.open_files or had)
        async with AsyncExitStack() as undo:
            store = undo.enter_context(closing(Store.open(state)))
            cluster = cls(store, state, options)
            undo.pop_all()  # From here on, `cluster.close` closes the store.
            undo.push_async_callback(cluster.close)
            try:
                await cluster._begin()
            except (OSError, Unavailable) as error:
                raise StateUnusable(f"{state}: {error}; {USABLE}") from error
            undo.pop_all()
        return cluster

    async def _begin(self) -> None:
        # Adopt the pods first: their stored status is out of date, and the other parts must not act on it.
        await self._pods.adopt()
        self._recorder.expire()
        self._store.watch(self._see)
        self._scheduler.begin()
        self._nodes.begin()
        self._jobs.begin()

    def _see(self, change: Change) -> None:
        self._jobs.see(change)
        self._nodes.see(change)
        self._scheduler.see(change)

    async def create(self, manifest: Manifest) -> Manifest:
        """Create a job or a companion object; see `Cluster.create`."""
        if text(manifest, "kind") == "PodGroup":
            return self._store.create(manifest)
        return self._store.create(admission.admit(_placed(manifest)))

    async def get(self, name: Name, *, awaited: bool = True) -> Manifest | None:  # noqa: ARG002
        """Return a job; see `Cluster.get`."""
        return self._find("PyTorchJob", name)

    async def pods(self, namespace: str, job: str) -> Sequence[Pod]:
        """Return the replicas of a job; see `Cluster.pods`."""
        there = [each for each in self._store.all("Pod") if label_of(each, JOB_NAME) == job]
        return [
            read_pod(each)
            for each in there
            if key_of(each).namespace == namespace and label_of(each, IDENTITY)
        ]

    async def patch(self, name: Name, patch: Manifest, *, awaited: bool = False) -> None:  # noqa: ARG002
        """Patch a job; see `Cluster.patch`."""
        old = self._find("PyTorchJob", name)
        if old is not None:
            new = admission.admit_update(old, admission.merge_patch(old, patch))
            try:
                self._store.update(new)
            except Conflict as conflict:
                raise Outdated(str(conflict)) from conflict

    async def delete(self, name: Name, *, awaited: bool = False) -> None:  # noqa: ARG002
        """Delete a job and all objects that it owns; see `Cluster.delete`."""
        job = self._find("PyTorchJob", name)
        if job is not None:
            self._store.remove(uid_of(job))

    async def delete_pod(self, name: Name) -> None:
        """Delete a pod; see `Cluster.delete_pod`."""
        pod = self._find("Pod", name)
        if pod is not None:
            self._pods.delete(pod)
        await asyncio.sleep(0)  # Let other tasks run while a caller deletes hundreds of pods.

    async def delete_companion(self, manifest: Manifest) -> None:
        """Delete a companion object; see `Cluster.delete_companion`."""
        there = self._store.get(key_of(manifest))
        if there is not None:
            self._store.remove(uid_of(there))

    async def record(self, event: Manifest) -> None:
        """Record an event about a job, or increase the count of an equal event; see `Cluster.record`."""
        about = section(event, "involvedObject")
        uid = text(about, "uid")
        job = self._find(
            "PyTorchJob", Name(namespace=text(about, "namespace"), name=text(about, "name"), uid=uid)
        )
        if job is not None:
            self._recorder.record(job, event)

    async def pod_templates(self, namespaces: Sequence[str], name: str) -> Sequence[Manifest]:
        """Return the PodTemplates with this name; see `Cluster.pod_templates`.

        A template without a namespace belongs to every namespace.
        """
        return [
            with_metadata(template, namespace=namespace)
            for namespace in namespaces
            for template in self._templates
            if text(section(template, "metadata"), "name") == name
            and text(section(template, "metadata"), "namespace") in ("", namespace)
        ]

    async def owner(self, namespace: str, execution: str) -> OwnerReference | None:
        """Return None, because the embedded cluster has no Flyte objects; see `Cluster.owner`."""

    async def follow(self, sink: Sink) -> None:
        """Deliver all objects to `sink`, then every change; see `Cluster.follow`."""
        following.tell_all(self._store, sink)
        unwatch = self._store.watch(lambda change: following.tell(change, sink))
        try:
            await asyncio.Event().wait()
        finally:
            unwatch()

    async def log(self, pod: Name, request: LogRequest) -> AsyncIterator[LogLine]:
        """Yield the log lines of a container; see `Cluster.log`."""
        found = self._find("Pod", pod)
        if found is not None:
            async for line in self._pods.log(found, request):
                yield line

    async def nodes(self) -> Sequence[Manifest]:
        """Return all nodes as core/v1 objects."""
        return self._nodes.all()

    async def lose(self, node: str) -> None:
        """Make a node unreachable: kill its processes, and fail its pods after `EmbeddedOptions.lost_after`.

        Raises:
            Refused: If the node does not exist.
        """
        self._nodes.lose(node)

    async def drain(self, node: str) -> None:
        """Cordon a node and evict its pods.

        Raises:
            Refused: If the node does not exist.
        """
        self._nodes.drain(node)

    async def restore(self, node: str) -> None:
        """Make an unreachable or drained node ready and schedulable again.

        Raises:
            Refused: If the node does not exist.
        """
        self._nodes.restore(node)

    async def close(self) -> None:
        """Stop the cluster and release its state directory. Pods end unless they are durable."""
        self._expiry.cancel()
        self._jobs.close()
        self._scheduler.close()
        self._nodes.close()
        await self._pods.close()
        self._store.close()

    def _find(self, kind: str, name: Name) -> Manifest | None:
        found = self._store.get(Key(kind, name.namespace, name.name))
        return found if found is not None and name.uid in (None, uid_of(found)) else None

    def _expire(self) -> None:
        self._expiry = self._loop.call_later(_EXPIRY, self._expire)
        with suppress(Unavailable):
            self._recorder.expire()


def _placed(manifest: Manifest) -> Manifest:
    """Set the namespace `default` if the object has no namespace."""
    if text(section(manifest, "metadata"), "namespace"):
        return manifest
    return with_metadata(manifest, namespace="default")


def _of_kubelet(options: EmbeddedOptions) -> KubeletOptions:
    return KubeletOptions(
        code=options.code,
        images=options.images,
        strict_images=options.strict_images,
        durable=options.durable,
        pass_env=options.pass_env,
        back_off=options.restarts,
        logs=options.logs,
        open_files=options.open_files,
    )
