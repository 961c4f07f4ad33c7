"""The embedded cluster, an implementation of `shell.cluster.Cluster`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import Final

from backend_plugin.core.dialects import table
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.names import IDENTITY
from backend_plugin.core.object_readers import read_pod
from backend_plugin.core.observed import Job, Pod
from backend_plugin.core.reading import get_text
from backend_plugin.core.runtimes import Runtime
from backend_plugin.core.values import Manifest
from backend_plugin.embedded import node_transitions, pod_templates, ports, watch_feed
from backend_plugin.embedded.events import EventRecorder
from backend_plugin.embedded.job_reconciler import JobReconciler
from backend_plugin.embedded.kubelet import Kubelet
from backend_plugin.embedded.node_controller import NodeController
from backend_plugin.embedded.objects import PREREQUISITES, Key, get_key, get_label, get_uid, merge_patch
from backend_plugin.embedded.operators.table import admit_object
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.embedded.pods import PodController
from backend_plugin.embedded.scheduler import Scheduler
from backend_plugin.embedded.state_lock import USABLE, StateUnusable
from backend_plugin.embedded.store import Store
from backend_plugin.shell.cluster import (
    ClusterUnavailable,
    LogLine,
    LogRequest,
    ObjectName,
    Sink,
)

_EXPIRY: Final = 60.0
"""Seconds between two deletions of expired events."""


class EmbeddedCluster:
    """An emulated cluster, with the methods of the protocol `Cluster` of `shell.cluster`.

    Create an instance with `open`; use it in one event loop.
    """

    def __init__(self, store: Store, directory: Path, options: EmbeddedOptions) -> None:
        self._loop = asyncio.get_running_loop()
        self._templates = pod_templates.read_templates(options.pod_templates)
        self._store = store
        self._recorder = EventRecorder(store)
        self._pods = PodController(
            store, self._recorder, lambda pods: Kubelet(directory / "pods", options, pods)
        )
        self.nodes = NodeController(store, self._pods, self._recorder, options)
        """The nodes of the cluster. Client commands can fail, drain and restore them."""
        self.nodes.ensure_nodes(node_transitions.build_nodes(options, directory, store.clock()))
        self._jobs = JobReconciler(store, self._pods, self._recorder)
        self._scheduler = Scheduler(store, self._pods.apply_decision)
        self._expiry = self._loop.call_later(_EXPIRY, self._expire_events)

    @classmethod
    async def open(cls, state: Path, options: EmbeddedOptions) -> "EmbeddedCluster":
        """Open the cluster in the state directory `state`, and create the directory if it does not exist.

        The jobs that an earlier server stored in this directory continue. Their pods that still run are taken
        over. A pod whose processes were killed when the earlier server ended has failed. No pod is started
        twice.

        Raises:
            StateUnusable: If another server uses the directory, or if it cannot be read or written.
            UnreadableTemplates: If the pod templates cannot be read.
        """
        ports.raise_open_file_limit()
        async with AsyncExitStack() as undo:
            store = undo.enter_context(closing(Store.open(state)))
            cluster = cls(store, state, options)
            undo.pop_all()  # From here on, `cluster.close` closes the store.
            undo.push_async_callback(cluster.close)
            try:
                await cluster._start()
            except (OSError, ClusterUnavailable) as error:
                raise StateUnusable(f"{state}: {error}; {USABLE}") from error
            undo.pop_all()
        return cluster

    async def _start(self) -> None:
        # Adopt the pods first, because the other parts must not act on their stored, outdated status.
        await self._pods.adopt()
        self._recorder.expire()
        self._store.watch(self._jobs.on_change)
        self._store.watch(self._scheduler.on_change)
        self._scheduler.start()
        self.nodes.start()
        self._jobs.start()

    async def create(self, manifest: Manifest) -> Manifest:
        """Create a job or one of its companion objects (PodGroup, TrainingRuntime); see `Cluster.create`."""
        return self._store.create(admit_object(manifest, self._store.get))

    async def get(self, name: ObjectName, *, awaited: bool = True) -> Manifest | None:  # noqa: ARG002
        """Return a job, or None if it does not exist; see `Cluster.get`."""
        return self._find_job(name)

    async def list_pods(self, job: ObjectName) -> Sequence[Pod]:
        """Return the pods of a job that have this backend's label `IDENTITY`; see `Cluster.list_pods`."""
        label = table.get_dialect(job.dialect).labels.job_name
        return [
            read_pod(each)
            for each in self._store.list_objects("Pod")
            if get_label(each, label) == job.name
            and get_key(each).namespace == job.namespace
            and get_label(each, IDENTITY)
        ]

    async def patch(self, name: ObjectName, patch: Manifest, *, awaited: bool = False) -> None:  # noqa: ARG002
        """Patch a job; see `Cluster.patch`."""
        old = self._find_job(name)
        if old is not None:
            self._store.update(merge_patch(old, patch))

    async def delete(self, name: ObjectName, *, awaited: bool = False) -> None:  # noqa: ARG002
        """Delete a job and all objects that it owns; see `Cluster.delete`."""
        job = self._find_job(name)
        if job is not None:
            self._store.remove(get_uid(job))

    async def delete_pod(self, name: ObjectName) -> None:
        """Delete a pod; see `Cluster.delete_pod`."""
        await self._end_pod(name, self._pods.delete)

    async def stop_pod(self, name: ObjectName) -> None:
        """End a pod and keep its logs; see `Cluster.stop_pod`."""
        await self._end_pod(name, self._pods.stop)

    async def _end_pod(self, name: ObjectName, end: Callable[[Manifest], None]) -> None:
        pod = self._find_object("Pod", name)
        if pod is not None:
            end(pod)
        await asyncio.sleep(0)  # Let other tasks run while a caller ends hundreds of pods.

    async def patch_object(self, manifest: Manifest, patch: Manifest) -> None:
        """Patch an object that a job requires, such as its TrainingRuntime; see `Cluster.patch_object`."""
        existing = self._store.get(get_key(manifest))
        if existing is not None:
            self._store.update(merge_patch(existing, patch))

    async def list_prerequisites(self) -> Sequence[Manifest]:
        """Return the objects that jobs require (TrainingRuntimes); see `Cluster.list_prerequisites`."""
        return [each for kind in PREREQUISITES for each in self._store.list_objects(kind)]

    async def list_foreign_jobs(self, name: str = "") -> Sequence[Job]:  # noqa: ARG002
        """Return no jobs, because the cluster has no other clients; see `Cluster.list_foreign_jobs`."""
        return ()

    async def list_runtimes(self) -> Sequence[Runtime]:
        """Return the Kubeflow runtimes in the cluster; see `Cluster.list_runtimes`."""
        return [
            dialect.runtimes.read(each)
            for dialect in table.DIALECTS.values()
            if dialect.runtimes is not None and dialect.prerequisite is not None
            for each in self._store.list_objects(dialect.prerequisite.kind)
        ]

    async def delete_companion(self, manifest: Manifest) -> None:
        """Delete a companion object of a job (see `create`), if it exists; see `Cluster.delete_companion`."""
        existing = self._store.get(get_key(manifest))
        if existing is not None:
            self._store.remove(get_uid(existing))

    async def record_event(self, event: Manifest) -> None:
        """Record an event about a job, or increment an equal event's count; see `Cluster.record_event`."""
        job = self._store.get_by_uid(get_text(event, "involvedObject", "uid"))
        if job is not None:
            self._recorder.record(job, event)

    async def list_pod_templates(self, namespaces: Sequence[str], name: str) -> Sequence[Manifest]:
        """Return the PodTemplates with this name; see `Cluster.list_pod_templates`."""
        return pod_templates.select_templates(self._templates, namespaces, name)

    async def find_owner(self, namespace: str, execution: str) -> OwnerReference | None:
        """Return None, because the embedded cluster has no Flyte objects; see `Cluster.find_owner`."""

    async def watch(self, sink: Sink) -> None:
        """Deliver the jobs and their objects to `sink`, then every change; see `Cluster.watch`."""
        watch_feed.deliver_all(self._store, sink)
        unwatch = self._store.watch(lambda change: watch_feed.deliver_change(change, sink))
        try:
            await asyncio.Event().wait()
        finally:
            unwatch()

    async def read_log(self, pod: ObjectName, request: LogRequest) -> AsyncIterator[LogLine]:
        """Yield the log lines of a container; see `Cluster.read_log`."""
        manifest = self._find_object("Pod", pod)
        if manifest is not None:
            async for line in self._pods.read_log(manifest, request):
                yield line

    async def close(self) -> None:
        """Stop the cluster and release its state directory. Pods end, unless the option `durable` is set."""
        self._expiry.cancel()
        self._jobs.close()
        self._scheduler.close()
        self.nodes.close()
        await self._pods.close()
        self._store.close()

    def _find_job(self, name: ObjectName) -> Manifest | None:
        return self._find_object(table.get_dialect(name.dialect).name, name)

    def _find_object(self, kind: str, name: ObjectName) -> Manifest | None:
        manifest = self._store.get(Key(kind, name.namespace, name.name))
        return manifest if manifest is not None and name.uid in (None, get_uid(manifest)) else None

    def _expire_events(self) -> None:
        self._expiry = self._loop.call_later(_EXPIRY, self._expire_events)
        with suppress(ClusterUnavailable):
            self._recorder.expire()
