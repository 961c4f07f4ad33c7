# ruff: noqa: E501 - a row a case
"""Tests for the gang annotation of a job, the names of gang objects, and the effective requests of pods."""

import json

import pytest
from builders import a_run, a_template

from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.job import ReplicaRole
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling import gang_annotation, registry
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.scheduling.gang import GangRole, GangSpec
from backend_plugin.core.scheduling.pod_requests import compute_pod_requests, format_amounts, parse_amounts
from backend_plugin.core.scheduling.schedulers import yunikorn
from backend_plugin.core.settings import read


@pytest.mark.parametrize("text", ["", "{", "[]", '{"roles": 1}', "\ud800", "[" * 5_000])
def test_unreadable_annotation_is_an_empty_gang_summary(text):
    assert gang_annotation.read_gang_summary({gang_annotation.ANNOTATION: text}) == gang_annotation.NO_GANG


@pytest.mark.parametrize(("count", "amount"), [("1", "x"), ("1", "1e99"), ("9" * 4_000, "1"), ("-1", "1")])
def test_invalid_amount_has_no_total(count, amount):
    roles = f'[{{"name": "worker", "count": {count}, "requests": {{"cpu": "{amount}"}}}}]'
    gang = gang_annotation.read_gang_summary({gang_annotation.ANNOTATION: f'{{"roles": {roles}}}'})
    assert gang.compute_total("cpu") is None


def test_gang_object_is_recognized_by_its_name():
    names = {
        "tg-f6aa670617356-n0-0-ed00cc3d4-worker-41ygdl47ro": True,
        "pg-f1-n0-0-0123456789ab-0a1b2c3d-0000-4000-8000-0123456789ab": True,
        "f1-n0-0-0123456789ab-worker-0": False,
        "pg-backup": False,
        "": False,
    }
    assert {name: registry.can_be_gang_object(name) for name in names} == names


@pytest.mark.parametrize(
    ("runtime", "requests"),
    [({}, {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}), ({"runtime": "torch-distributed"}, {})],
    ids=["own runtime", "named runtime"],
)
def test_gang_has_the_requests_of_its_initializers_unless_a_named_runtime_determines_them(runtime, requests):
    sources = {"dataset": {"uri": "s3://data/digits"}, "model": {"uri": "hf://a/b"}}
    storage = {} if runtime else {"storage": {"size": "1Gi"}}
    custom = {"workerReplicas": {"replicas": 2}, "kfpytorch": {"trainJob": {**sources, **storage, **runtime}}}
    settings = read({
        "default-cpus": "1",
        "default-memory": "1Gi",
        "kfpytorch": {"gang": {"scheduler": "kueue", "queue": "team"}},
    })  # fmt: skip
    found = Capabilities(container_defaults={"ephemeral-storage": "2Gi"})
    job = plan(a_template(custom), a_run(), settings, capabilities=found).job
    gang = gang_annotation.read_gang_summary(job["metadata"]["annotations"])
    assert [(each.name, each.count, each.requests) for each in gang.initializers] == [
        ("dataset-initializer", 1, requests),
        ("model-initializer", 1, requests),
    ]
    assert gang.has_unknown_requests is bool(runtime)
    (role,) = gang.roles
    assert (role.name, role.requests["ephemeral-storage"]) == ("node", "2Gi")


def container(cpu: str = "", *, limits=None, **fields):
    resources = {"requests": {"cpu": cpu} if cpu else {}, "limits": limits or {}}
    return {
        "name": "c",
        "resources": {part: amounts for part, amounts in resources.items() if amounts},
        **fields,
    }


def sidecar(cpu: str):
    return container(cpu, restartPolicy="Always")


@pytest.mark.parametrize(
    ("containers", "more", "asked"),
    [
        ([], {}, {}),
        ([container()], {}, {}),
        ([container("1"), container("500m")], {}, {"cpu": "1500m"}),
        ([container(limits={"cpu": "3", "nvidia.com/gpu": 8})], {}, {"cpu": "3", "nvidia.com/gpu": "8"}),
        ([container("1", limits={"cpu": "3", "memory": "1Gi"})], {}, {"cpu": "1", "memory": "1Gi"}),
        ([container("1")], {"initContainers": [container("3")]}, {"cpu": "3"}),
        ([container("1")], {"initContainers": [container("500m")]}, {"cpu": "1"}),
        ([container("2")], {"initContainers": [sidecar("1")]}, {"cpu": "3"}),
        # A sidecar is added to the init containers after it, not to those before it.
        ([container("1")], {"initContainers": [sidecar("2"), container("3")]}, {"cpu": "5"}),
        ([container("1")], {"initContainers": [container("3"), sidecar("2")]}, {"cpu": "3"}),
        ([container("1")], {"initContainers": [container(limits={"memory": "1Gi"})]}, {"cpu": "1", "memory": "1Gi"}),
        ([container("1")], {"overhead": {"cpu": "250m", "memory": "64Mi"}}, {"cpu": "1250m", "memory": "64Mi"}),
        ([container("1")], {"resources": {"requests": {"cpu": "4"}}}, {"cpu": "4"}),
        ([container("1")], {"resources": {"limits": {"cpu": "4", "memory": "2Gi"}}}, {"cpu": "1", "memory": "2Gi"}),
        ([container("1")], {"resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "1"}}, {"cpu": "5"}),
        # Kubernetes ignores devices in pod-level resources.
        ([container("1")], {"resources": {"requests": {"nvidia.com/gpu": "4"}}}, {"cpu": "1"}),
        ([container("1")], {"resources": {"requests": {"hugepages-2Mi": "4Mi"}}}, {"cpu": "1", "hugepages-2Mi": "4Mi"}),
    ],
)  # fmt: skip
def test_pod_requests_are_computed_like_kubernetes_does(containers, more, asked):
    assert format_amounts(compute_pod_requests({"containers": containers, **more})) == asked


def test_missing_container_resources_are_taken_from_the_namespace_defaults():
    defaults = parse_amounts({"cpu": "100m", "memory": "1Gi"})
    containers = [container("2"), container(limits={"memory": "3Gi"})]
    spec = {"containers": containers, "initContainers": [sidecar("1")]}
    assert format_amounts(compute_pod_requests(spec, (), defaults)) == {"cpu": "3100m", "memory": "5Gi"}
    # The defaults also apply to the init container that the operator adds.
    many = parse_amounts({"ephemeral-storage": "1Gi"})
    added = DEFAULT.list_added_containers(ReplicaRole.WORKER, [ReplicaRole.MASTER, ReplicaRole.WORKER])
    alone = compute_pod_requests({"containers": []}, added, many)
    assert format_amounts(alone) == {"cpu": "50m", "memory": "10Mi", "ephemeral-storage": "1Gi"}


@pytest.mark.parametrize(
    ("cpu", "inits", "spec", "asked"),
    [
        ("4", [sidecar("1")], {}, {"cpu": "5"}),
        # YuniKorn 1.8 counts a sidecar twice: 2 x 3 is more than 1 + 3.
        ("1", [sidecar("3")], {}, {"cpu": "6"}),
        ("1", [sidecar("1"), sidecar("3")], {}, {"cpu": "7"}),
        ("1", [sidecar("3"), sidecar("1")], {}, {"cpu": "6"}),
        ("1", [sidecar("3"), container(limits={"memory": "4Gi"})], {}, {"cpu": "6", "memory": "4Gi"}),
        ("1", [sidecar("3")], {"overhead": {"cpu": "250m"}}, {"cpu": "6250m"}),
        ("1", [sidecar("3")], {"resources": {"requests": {"cpu": "5"}}}, {"cpu": "5"}),
        # The API server writes the requests of the containers as the pod-level requests.
        ("1", [sidecar("3")], {"resources": {"requests": {"memory": "1Gi"}}}, {"cpu": "4", "memory": "1Gi"}),
        ("1", [container("9"), sidecar("3")], {}, {"cpu": "9"}),
    ],
)
def test_yunikorn_placeholder_has_the_request_that_yunikorn_computes(cpu, inits, spec, asked):
    pod = {"containers": [container(cpu)], "initContainers": inits, **spec}
    request = compute_pod_requests(pod)
    worker = GangRole(role=ReplicaRole.WORKER, count=2, min_count=2, request=request, spec=pod)
    marks = yunikorn.ADAPTERS[""].marks(GangSpec(name="j", namespace="n", members=[worker]))
    (group,) = json.loads(marks.pod_annotations(worker)["yunikorn.apache.org/task-groups"])
    assert group["minResource"] == asked
