"""A scripted cluster: stores objects, rejects requests as a cluster does, and injects faults."""

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.object_readers import read_event, read_pod
from backend_plugin.core.observed import Event, Job, Pod, PodGroup
from backend_plugin.core.runtimes import Runtime
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import merge_patch
from backend_plugin.shell.cluster import (
    AlreadyExists,
    ClusterUnavailable,
    LogLine,
    ObjectName,
    Sink,
    VersionConflict,
)


def ago(seconds):
    return (datetime.now(timezone.utc) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_set_event():
    event = asyncio.Event()
    event.set()
    return event


def format_time(seconds):
    """Return the time so many seconds after a fixed one."""
    return f"2026-01-01T00:{int(seconds) // 60:02}:{seconds % 60:06.3f}Z"


LABEL = table.DEFAULT.labels.job_name
_READERS = {"PyTorchJob": read_job, "TrainJob": read_job, "Pod": read_pod, "Event": read_event}


@dataclass(eq=False)
class ScriptedCluster:
    """Stores objects by kind, namespace and name, and sends every change to its sinks."""

    objects: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    awaited: list[str] = field(default_factory=list)
    """The names of the patches and deletions that a caller waits for."""
    away: bool = False  # All requests raise `ClusterUnavailable`.
    slow: asyncio.Event = field(default_factory=build_set_event)
    """While it is clear, requests wait before they are processed."""
    late: asyncio.Event = field(default_factory=build_set_event)
    """While it is clear, requests are processed, and their responses wait."""
    deaf: bool = False  # Changes are not sent, as with a watch that hangs.
    blind: bool = False  # Pods may not be listed.
    refusal: Exception | None = None
    may_not_stop: Exception | None = None
    templates: list[Manifest] = field(default_factory=list)
    written: dict[str, list[LogLine]] = field(default_factory=dict)  # The log lines by pod.
    ended: set[str] = field(default_factory=set)  # The pods that write no more lines.
    reading: int = 0  # The number of logs that are being read.
    torn: bool = False  # Logs break off after their first line.
    foreign: list[Job] = field(default_factory=list)
    runtimes: list[Runtime] = field(default_factory=list)
    owners: dict[tuple[str, str], OwnerReference] = field(default_factory=dict)
    _sinks: list[Sink] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    # ---- changes by tests

    def apply(self, manifest):
        """Store an object, as the operator, a kubelet or a user does."""
        metadata = {
            "uid": f"uid-{next(self._numbers)}",
            "creationTimestamp": ago(0),
            **self._owned(manifest),
            **manifest["metadata"],
            "resourceVersion": str(next(self._numbers)),
        }
        stored = {**manifest, "metadata": metadata}
        self.objects[manifest["kind"], metadata["namespace"], metadata["name"]] = stored
        self._publish(stored)
        return stored

    def _owned(self, manifest):
        """Return the owner reference that the operator writes to a replica; a test may write another one."""
        name = manifest["metadata"].get("labels", {}).get(LABEL)
        job = self.objects.get(("PyTorchJob", manifest["metadata"]["namespace"], name))
        owners = [{"kind": "PyTorchJob", "name": name, "uid": job["metadata"]["uid"]}] if job else []
        return {"ownerReferences": owners} if manifest["kind"] == "Pod" and owners else {}

    def status(self, name, status):
        (stored,) = (each for key, each in self.objects.items() if key[0] == "PyTorchJob" and key[2] == name)
        self.apply({**stored, "status": status})

    def write(self, pod, seconds, text):
        self.written.setdefault(pod, []).append(LogLine(time=format_time(seconds), text=text))

    def remove(self, kind, namespace, name):
        if self.objects.pop((kind, namespace, name), None) is not None:
            gone = ObjectName(namespace=namespace, name=name)
            self._notify(lambda sink: sink.drop_record({"PyTorchJob": Job, "Pod": Pod}[kind], gone))

    def relist(self):
        for sink in self._sinks:
            self._list(sink)

    def _publish(self, stored):
        namespace, read = stored["metadata"]["namespace"], _READERS[stored["kind"]]
        self._notify(lambda sink: sink.put_record(namespace, read(stored)))

    def _notify(self, change):
        if self.deaf:
            return
        for sink in self._sinks:
            change(sink)

    def _list(self, sink):
        for kind, record in (("PyTorchJob", Job), ("Pod", Pod), ("Event", Event), ("PodGroup", PodGroup)):
            found = [(key[1], _READERS[kind](each)) for key, each in self.objects.items() if key[0] == kind]
            sink.replace_records(record, found)

    async def _record_call(self, what):
        self.calls.append(what)
        await self.slow.wait()
        if self.away:
            raise ClusterUnavailable("connection refused")

    # ---- requests of the server

    async def create(self, manifest):
        await self._record_call("create")
        if self.refusal is not None:
            raise self.refusal
        job = manifest
        if (job["kind"], job["metadata"]["namespace"], job["metadata"]["name"]) in self.objects:
            raise AlreadyExists(job["metadata"]["name"])
        made = self.apply(job)
        await self.late.wait()
        return made

    def _find(self, kind, name):
        stored = self.objects.get((kind, name.namespace, name.name))
        return stored if stored is not None and name.uid in (None, stored["metadata"]["uid"]) else None

    async def get(self, name, *, awaited=True):
        await self._record_call("get")
        found = self._find("PyTorchJob", name)
        await self.late.wait()
        return found

    async def list_pods(self, job):
        await self._record_call("pods")
        there = [each for key, each in self.objects.items() if key[:2] == ("Pod", job.namespace)]
        found = [read_pod(each) for each in there if each["metadata"]["labels"].get(LABEL) == job.name]
        await self.late.wait()
        return None if self.blind else found

    async def patch(self, name, patch, *, awaited=False):
        self.awaited += ["patch"] if awaited else []
        await self._record_call("patch")
        stored = self._find("PyTorchJob", name)
        if stored is not None:
            patched = merge_patch(stored, patch)
            if patched["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
                raise VersionConflict("the object has been modified")
            self.apply(patched)

    async def delete(self, name, *, awaited=False):
        self.awaited += ["delete"] if awaited else []
        await self._record_call("delete")
        if self._find("PyTorchJob", name) is not None:
            self.remove("PyTorchJob", name.namespace, name.name)

    async def delete_pod(self, name):
        await self._record_call(f"delete_pod {name.name}")
        if self._find("Pod", name) is not None:
            self.remove("Pod", name.namespace, name.name)

    async def stop_pod(self, name):
        await self._record_call(f"stop_pod {name.name}")
        if self.may_not_stop is not None:
            raise self.may_not_stop
        pod = self._find("Pod", name)
        if pod is not None:
            self.apply({**pod, "status": {**pod["status"], "phase": "Failed", "reason": "DeadlineExceeded"}})

    async def list_prerequisites(self):
        return ()

    async def list_foreign_jobs(self, name=""):
        await self._record_call("list_foreign_jobs")
        return [each for each in self.foreign if name in ("", each.name)]

    async def list_runtimes(self):
        await self._record_call("list_runtimes")
        return self.runtimes

    async def record_event(self, event):
        await self._record_call("record")
        self.apply(event)

    async def find_owner(self, namespace, execution):
        return self.owners.get((namespace, execution))

    async def list_pod_templates(self, namespaces, name):
        await self._record_call("pod_templates")
        return [each for each in self.templates if each["metadata"]["name"] == name]

    async def watch(self, sink):
        if self.away:
            raise ClusterUnavailable("connection refused")
        self._list(sink)
        self._sinks.append(sink)
        try:
            await asyncio.Event().wait()
        finally:
            self._sinks.remove(sink)

    async def read_log(self, pod, request):
        lines = self.written.get(f"{pod.name} (previous)" if request.previous else pod.name, [])
        place = 0 if request.tail is None else max(0, len(lines) - request.tail)
        self.reading += 1
        try:
            while place < len(lines) or (request.follow and pod.name not in self.ended):
                if place < len(lines):
                    yield lines[place]
                    place += 1
                    if self.torn:
                        raise ClusterUnavailable("the node does not answer")
                else:
                    await asyncio.sleep(0.005)
        finally:
            self.reading -= 1
