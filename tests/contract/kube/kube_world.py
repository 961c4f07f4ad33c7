"""Kubernetes objects, a sink, and a client that is opened and closed."""

import asyncio
import hashlib
import json
from contextlib import asynccontextmanager

from builders import a_run
from kube_server import kubeconfig
from scripted_cluster import ago
from serving import NAMESPACE, is_phase, serving, wait_until

from backend_plugin.core import job_ref
from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.job import JobRef
from backend_plugin.core.observed import Job
from backend_plugin.doctor import fact_collector, task_planner
from backend_plugin.kube.cluster import KubernetesCluster
from backend_plugin.kube.credentials import CredentialsUnusable
from backend_plugin.kube.options import KubernetesOptions

NAME = "f1-n0-0-0123456789ab"
IDENTITY = "kfpytorch.flyte.org/job"
JOBS = ("kubeflow.org", "pytorchjobs")
PODS = ("", "pods")
EVENTS = ("", "events")
POD_GROUPS = ("scheduling.x-k8s.io", "podgroups")
WORKFLOWS = ("flyte.lyft.com", "flyteworkflows")
WITH_POD_GROUPS = {"kfpytorch": {"gang": {"scheduler": "coscheduling", "pod-groups-by": "backend"}}}
"""Settings with which a server creates a PodGroup for each job."""


def job(name=NAME, **fields):
    master = {"replicas": 1, "template": {"spec": {"containers": []}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "ns", "labels": {IDENTITY: "x"}},
        "spec": {"pytorchReplicaSpecs": {"Master": master}},
        **fields,
    }


def pod(name=f"{NAME}-master-0", phase="Pending", **spec):
    about = {"name": NAME, "namespace": "ns", "uid": "", "labels": {IDENTITY: "x"}}
    metadata = build_replica({"metadata": about}, "master-0", name=name, ownerReferences=[])
    containers = [{"name": "pytorch"}]
    return {"metadata": metadata, "spec": {"containers": containers, **spec}, "status": {"phase": phase}}


def ended_pod(name, labels, node="n", container="pytorch", exit_code=0):
    reason = "Error" if exit_code else "Completed"
    ended = {"exitCode": exit_code, "reason": reason, "finishedAt": "2026-01-01T00:00:01Z"}
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": container}]},
        "status": {
            "phase": "Failed" if exit_code else "Succeeded",
            "containerStatuses": [{"name": container, "state": {"terminated": ended}}],
        },
    }


def build_replica(job, replica, **metadata):
    """Return the metadata of the pod that the operator creates for a replica of a job."""
    about = job["metadata"]
    role, _, index = replica.partition("-")
    labels = {"job-name": about["name"], "replica-type": role, "replica-index": index}
    return {
        "name": f"{about['name']}-{replica}",
        "namespace": about["namespace"],
        "ownerReferences": [{"kind": "PyTorchJob", "name": about["name"], "uid": about["uid"]}],
        "labels": {
            **{f"training.kubeflow.org/{key}": value for key, value in labels.items()},
            IDENTITY: about["labels"][IDENTITY],
        },
        **metadata,
    }


def event(reason, name=f"{NAME}-master-0", namespace="ns", **fields):
    about = {"kind": fields.pop("kind", "Pod"), "name": name, "namespace": namespace}
    return {
        "metadata": {"name": f"e.{reason}.{name}", "namespace": namespace},
        "involvedObject": about,
        "reason": reason,
        "lastTimestamp": "2026-01-01T00:00:00Z",
        **fields,
    }


class Heard:
    """A sink that stores the records by kind and name, and counts replacements."""

    def __init__(self):
        self.there = {}
        self.events = []
        self.replaced = []
        self.dropped = []

    def replace_records(self, kind, records):
        self.replaced.append(kind.__name__)
        self.there[kind.__name__] = {}
        for namespace, record in records:
            self.put_record(namespace, record)

    def put_record(self, namespace, record):
        kind = type(record).__name__
        assert kind in self.there, "reported before the first list was complete"
        self.there[kind][namespace, record.name] = record
        if kind == "Event":
            self.events.append(record.reason)  # type: ignore[union-attr]

    def drop_record(self, kind, name):
        self.dropped.append(name)
        del self.there[kind.__name__][name.namespace, name.name]

    def names(self, kind=Job):
        return sorted(name for _, name in self.there.get(kind.__name__, {}))

    def complete(self):
        return {"Job", "Pod", "Event", "PodGroup"} <= self.there.keys()


def options(server, directory, **settings):
    config = kubeconfig(server, directory / "config", {"token": "t"})
    return KubernetesOptions(**{"kubeconfig": config, "refused_pause": 0.2, **settings})


def collect_facts(server, directory, **fields):
    """Return the facts that the doctor reads, for the task of its own unless `fields` have another one."""
    fields = {"template": task_planner.build_default_task(), "named": False, **fields}
    request = fact_collector.DoctorRequest(run=a_run(namespace="ns"), **fields)
    return asyncio.run(fact_collector.collect_facts(options(server, directory, request_timeout=1.0), request))


class SetCredentials:
    def __init__(self, access):
        self.access = access

    async def load(self):
        if self.access is None:
            raise CredentialsUnusable("the file is being replaced")
        return self.access

    def forget(self):
        pass


@asynccontextmanager
async def opened(settings):
    cluster = await KubernetesCluster.open(settings)
    try:
        yield cluster
    finally:
        await cluster.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}, asyncio.all_tasks()


@asynccontextmanager
async def connected(server, folder, platform=None, *, detects=False):
    """Run a connector that is ready; `detects` lets it detect gang schedulers. It ends as if killed."""
    async with opened(options(server, folder)) as cluster:
        source = cluster.discovery if detects else None
        async with serving(folder, cluster, platform, capabilities=source) as here:
            await wait_until(here.cache.ready.is_set)
            yield here


@asynccontextmanager
async def following(cluster):
    """Follow the cluster and yield its sink after all records have arrived."""
    heard = Heard()
    task = asyncio.create_task(cluster.watch(heard))
    try:
        await wait_until(lambda: heard.complete() or task.done())
        yield heard
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


# ---- old jobs whose execution may be gone


LONG_AGO = "2026-01-01T00:00:00Z"
MARK = "kfpytorch.flyte.org/workflow-location"


def build_name(execution):
    return f"{execution}-n0-0-0123456789ab"


def prefix(execution):
    return f"s3://bucket/{execution}/n0/0"


def ours(execution, **metadata):
    """Return an old job of the first attempt of a node."""
    identity = hashlib.sha256(prefix(execution).encode()).hexdigest()[:40]
    annotations = {
        "kfpytorch.flyte.org/task": json.dumps({"execution": execution, "nodeId": "n0"}),
        "kfpytorch.flyte.org/output-prefix": prefix(execution),
        **metadata.pop("annotations", {}),
    }
    about = {"name": build_name(execution), "namespace": "ns", "creationTimestamp": LONG_AGO}
    labels = {"kfpytorch.flyte.org/job": identity}
    return job(metadata={**about, "labels": labels, "annotations": annotations, **metadata})


def reference(execution):
    named = {"name": build_name(execution), "output_prefix": prefix(execution)}
    return job_ref.encode(JobRef(dialect=DEFAULT.name, namespace="ns", **named))


def workflow(name, namespace="ns"):
    return {"metadata": {"name": name, "namespace": namespace}}


def names(server):
    return sorted(each["metadata"]["name"] for each in server.list_objects("pytorchjobs"))


def metadata(server, name):
    return server.get_object(JOBS, name)["metadata"]


# ---- the operator, the scheduler and the nodes of the only PyTorchJob


UNPLACED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
}


class Playing:
    def __init__(self, server):
        self._server = server
        (self.job,) = server.list_objects("pytorchjobs")
        self.name = self.job["metadata"]["name"]

    def becomes(self, kind, since=0.0, **metadata):
        """Set a condition of the job as the operator does, and these fields of its metadata."""
        condition = {"type": kind, "status": "True", "lastTransitionTime": ago(since)}
        status = {"startTime": ago(60), "conditions": [{**condition, "reason": f"PyTorchJob{kind}"}]}
        metadata = {**self.job["metadata"], **metadata}
        self._server.apply(JOBS, {**self.job, "metadata": metadata, "status": status})

    def runs(self):
        self.becomes("Running", 30)
        for replica in ("master-0", "worker-0"):
            self.pod(replica, created=90)

    def pod(self, replica, created=90.0, phase="Running", **status):
        """Write the pod of a replica; only a pending one has no node."""
        node = {} if phase == "Pending" else {"nodeName": "n"}
        metadata = build_replica(self.job, replica, creationTimestamp=ago(created))
        spec = {"containers": [{"name": "pytorch"}], **node}
        self._server.apply(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}})

    def waits(self, created):
        self.pod("worker-0", created, "Pending", conditions=[UNPLACED])

    def loses(self):
        self._server.remove(PODS, f"{self.name}-worker-0", NAMESPACE)
        self.waits(created=10)


async def create_running_job(server, here):
    meta = await here.create()
    play = Playing(server)
    play.runs()
    await wait_until(lambda: is_phase(here, meta, "RUNNING"))
    await wait_until(lambda: all(len(entry.pods) == 2 for entry in here.cache))
    return play, meta
