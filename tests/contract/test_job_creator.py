"""The creation of jobs with prerequisites, and the scan that sets their owners or deletes them."""

import asyncio
from datetime import datetime, timedelta, timezone

import pytest
from builders import a_run, a_template
from scripted_cluster import ScriptedCluster
from serving import NAMESPACE, serving

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.observed import Job
from backend_plugin.core.pipeline import plan
from backend_plugin.core.runtimes import Runtime
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.settings import read
from backend_plugin.core.signing import SigningKeys
from backend_plugin.embedded.store import system_clock
from backend_plugin.shell import job_creator
from backend_plugin.shell.background_operations import BackgroundOperations
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.capabilities_cache import NO_CAPABILITIES
from backend_plugin.shell.cluster import AlreadyExists, ClusterUnavailable
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.prerequisites import LEAST_AGE, Prerequisites
from backend_plugin.shell.reloaded_value import ReloadedValue

SETTINGS = {"kfpytorch": {"dialect": "trainjob"}}
PLANNED = plan(a_template({"masterReplicas": {"replicas": 1}}), a_run(), read(SETTINGS))
PREMATURE = RequestRejected(403, "Forbidden", "specified trainingRuntime must be created before the TrainJob")
UNSEEN_BY_KUEUE = RequestRejected(
    403, "Forbidden", "admission webhook \"vtrainjob.kb.io\" denied the request: runtime 'f-n0-0' not found"
)
DENIED = RequestRejected(403, "Forbidden", "must not have reserved envs")


class Trainer:
    """A cluster whose webhook rejects TrainJobs with these errors, one for each create."""

    def __init__(self, *errors, objects=()):
        self.errors = [*errors]
        self.objects = {identify(each): each for each in objects}

    async def create(self, manifest):
        if manifest["kind"] == "TrainJob" and self.errors:
            raise self.errors.pop(0)
        if identify(manifest) in self.objects:
            raise AlreadyExists(identify(manifest))
        self.objects[identify(manifest)] = manifest
        return manifest

    async def get(self, name):
        return self.objects.get((name.dialect, name.name))

    async def list_prerequisites(self):
        return [each for each in self.objects.values() if each["kind"] == "TrainingRuntime"]

    async def patch_object(self, manifest, patch):
        self.objects[identify(manifest)]["metadata"] |= patch["metadata"]

    async def delete_companion(self, manifest):
        del self.objects[identify(manifest)]


def identify(manifest):
    return manifest["kind"], manifest["metadata"]["name"]


BOTH = ("TrainJob", "TrainingRuntime")


@pytest.mark.parametrize(
    ("cluster", "seconds", "result", "left"),
    [
        (Trainer(PREMATURE, UNSEEN_BY_KUEUE), 60.0, True, {*BOTH}),
        (Trainer(UNSEEN_BY_KUEUE), 0.0, ClusterUnavailable, {"TrainingRuntime"}),
        (Trainer(DENIED), 60.0, RequestRejected, set()),
        (Trainer(DENIED, objects=PLANNED.manifests), 60.0, False, {*BOTH}),
    ],
    ids=["late observation of the runtime", "no observation of the runtime", "rejected", "existing job"],
)
async def test_job_is_new_or_found_or_rejected_without_a_runtime(monkeypatch, cluster, seconds, result, left):
    monkeypatch.setattr(job_creator, "_PREMATURE_SECONDS", seconds)
    ring = ReloadedValue((), lambda: SigningKeys(keys=(b"of the tests",)))
    creator = job_creator.JobCreator(cluster, Cache(system_clock), NO_CAPABILITIES, ring)
    try:
        _, found, _ = await creator.create_or_find(PLANNED, a_run())
    except (ClusterUnavailable, RequestRejected) as error:
        found = type(error)
    assert (found, {kind for kind, _ in cluster.objects}) == (result, left)


NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
OLD, NEW = NOW - LEAST_AGE - timedelta(seconds=1), NOW - timedelta(minutes=1)


def a_runtime(created, **metadata):
    about = {"name": "a", "namespace": "n", "creationTimestamp": created.isoformat(), **metadata}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": about}


@pytest.mark.parametrize(
    ("runtime", "job", "owners"),
    [
        (a_runtime(NEW), Job(name="a", namespace="n", uid="u", dialect="TrainJob"), {"a": ["u"]}),
        (a_runtime(NEW), Job(name="a", namespace="n", uid="u", dialect="PyTorchJob"), {}),
        (a_runtime(NEW), None, {"a": []}),
        (a_runtime(OLD), None, {}),
        (a_runtime(OLD, ownerReferences=[{"uid": "gone"}]), None, {"a": ["gone"]}),
    ],
    ids=["of a job", "of a job of another dialect", "young", "old", "with an owner"],
)
async def test_scanned_runtime_is_adopted_kept_or_deleted_by_owner_job_and_age(runtime, job, owners):
    cluster, cache = Trainer(objects=[runtime]), Cache(lambda: NOW)
    cache.replace_records(Job, [("n", job)] if job else [])
    orders = BackgroundOperations(Metrics())
    await Prerequisites(cluster, cache, orders, lambda: NOW).scan()  # type: ignore[arg-type]
    await orders.drain(5.0)
    assert owners == {
        name: [owner["uid"] for owner in each["metadata"].get("ownerReferences", [])]
        for (_, name), each in cluster.objects.items()
    }


def job_options(runtime="torch-distributed", **options):
    return {"kfpytorch": {"trainJob": {"runtime": runtime, **options}}}


class WithoutJobSet:
    """The capabilities of a cluster in which only Trainer is installed."""

    async def fetch_capabilities(self, *_):
        return Capabilities(apis={"trainer.kubeflow.org": ("v1alpha1",)})


def create(folder, options, cluster, source=None):
    """Return the message of the failed task that CreateTask accepts; no object is left in the cluster."""

    async def run():
        async with serving(folder, cluster, SETTINGS, capabilities=source) as served:
            meta = await served.create(options=options)
            assert await served.phase(meta) == "FAILED"
            return str((await served.get(meta)).message)

    message = asyncio.run(run())
    assert cluster.objects == {}
    return message


def test_missing_operator_error_contains_the_installation_command(tmp_path):
    message = create(tmp_path, job_options(), ScriptedCluster(), WithoutJobSet())
    assert "it has no jobset.x-k8s.io" in message
    assert "kubectl apply --server-side -k" in message


def test_outdated_definition_error_contains_the_upgrade_command(tmp_path):
    cluster = ScriptedCluster()
    unknown = 'strict decoding error: unknown field "spec.runtimePatches"'
    cluster.refusal = RequestRejected(400, "BadRequest", f"TrainJob in version v1alpha1: {unknown}")
    message = create(tmp_path, job_options(), cluster)
    assert unknown in message
    assert "kubectl apply --server-side -k" in message


FOUND = [
    Runtime(name="torch-distributed", kind="ClusterTrainingRuntime", role="node"),
    Runtime(name="large", kind="ClusterTrainingRuntime", role="node"),
    Runtime(name="mpi", kind="ClusterTrainingRuntime", role="launcher"),
    Runtime(name="of-a-job", kind="TrainingRuntime", role="node", namespace=NAMESPACE, job="of-a-job"),
]


def test_unsuitable_runtime_is_rejected_with_the_suitable_ones(tmp_path):
    cluster = ScriptedCluster()
    cluster.runtimes = FOUND
    message = create(tmp_path, job_options("mpi"), cluster)
    assert 'custom.kfpytorch.trainJob.runtime="mpi"' in message
    assert message.endswith("write one of large, torch-distributed")


# Without a permission, the list has no runtime of the kind.
@pytest.mark.parametrize("options", [job_options(), job_options("own", runtimeKind="TrainingRuntime")])
async def test_suitable_or_unlisted_runtime_is_accepted(tmp_path, options):
    cluster = ScriptedCluster()
    cluster.runtimes = FOUND
    async with serving(tmp_path, cluster, SETTINGS) as served:
        await served.create(options=options)
    assert [kind for kind, *_ in cluster.objects] == ["TrainJob"]
