"""Helpers that open an embedded cluster, observe it, and build jobs from shell commands."""

import asyncio
import contextlib

from backend_plugin.core.observed import Event, Job, Pod
from backend_plugin.embedded.cluster import EmbeddedCluster
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.shell.cluster import LogRequest, ObjectName
from e2e.embedded.running_pods import wait_until

OURS = "kfpytorch.flyte.org/job"


class RecordedObjects:
    def __init__(self):
        self.records = {}
        self.changes = []

    def replace_records(self, kind, records):
        self.records[kind] = {}
        for namespace, record in records:
            self.put_record(namespace, record)

    def put_record(self, namespace, record):
        # The records of events have no name, so each event is kept.
        name = getattr(record, "name", "") if not isinstance(record, Event) else str(len(self.changes))
        self.records[type(record)][namespace, name] = record
        self.changes.append(record)

    def drop_record(self, kind, name):
        self.records[kind].pop((name.namespace, name.name), None)

    def job(self, name="j"):
        return self.records[Job].get(("a", name))

    def pod(self, name):
        return self.records[Pod].get(("a", name))

    @property
    def pods(self):
        return {name: pod for (_, name), pod in self.records[Pod].items()}

    @property
    def phases(self):
        return {name: pod.phase for name, pod in self.pods.items()}

    def events(self, reason):
        return [each for each in self.changes if isinstance(each, Event) and each.reason == reason]

    def states(self, name="j"):
        job = self.job(name)
        return {} if job is None else {each.type: each.true for each in job.conditions}

    async def wait_until(self, find):
        return await wait_until(find, self.records)

    async def state(self, kind, name="j"):
        await self.wait_until(lambda: self.states(name).get(kind))

    async def phase(self, phase, *pods):
        await self.wait_until(lambda: all(self.phases.get(each) == phase for each in pods))

    async def scheduled(self, name="j-worker-0", *, but=()):
        """Wait for the scheduler's condition of a pod with another uid than these."""
        return await self.wait_until(lambda: (pod := self.pod(name)) and pod.uid not in but and pod.scheduled)

    async def replaced(self, before):
        return await self.wait_until(
            lambda: (pod := self.pod(before.name)) and pod.uid != before.uid and pod.node and pod
        )


@contextlib.asynccontextmanager
async def following(state, recorded, **options):
    """Open the cluster with this state, record its objects, and close it at the end."""
    cluster = await EmbeddedCluster.open(state, EmbeddedOptions(**{"lost_after": 0.1, **options}))
    watching = asyncio.create_task(cluster.watch(recorded))
    await asyncio.sleep(0)
    try:
        yield cluster
    finally:
        watching.cancel()
        await cluster.close()


@contextlib.asynccontextmanager
async def opened(state, **options):
    recorded = RecordedObjects()
    async with following(state, recorded, **options) as cluster:
        yield cluster, recorded


def job(name="j", *, run_policy=None, **roles):
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "a", "labels": {OURS: name}},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None", **(run_policy or {})},
            "pytorchReplicaSpecs": {
                role: {**spec, "template": labelled(spec["template"], name)} for role, spec in roles.items()
            },
        },
    }


def labelled(template, name):
    return {"metadata": {"labels": {OURS: name}}, **template}


def role(command, replicas=1, restart_policy="Never", **more):
    """Build replicas that run a shell command. `resources`, `image` and `env` apply to the container."""
    container = {"name": "pytorch", "image": "train", "command": ["/bin/sh", "-c", command]}
    for field in ("resources", "image", "env"):
        if field in more:
            container[field] = more.pop(field)
    spec = {"containers": [container], "terminationGracePeriodSeconds": 5, **more}
    return {"replicas": replicas, "restartPolicy": restart_policy, "template": {"spec": spec}}


def cpus(amount):
    return {"requests": {"cpu": amount}}


def named(name="j"):
    return ObjectName(namespace="a", name=name)


async def lines(cluster, pod):
    return [line.text async for line in cluster.read_log(named(pod), LogRequest(container="pytorch"))]


async def read_first_line(cluster, pod):
    while not (found := await lines(cluster, pod)):
        await asyncio.sleep(0.02)
    return found[0]
