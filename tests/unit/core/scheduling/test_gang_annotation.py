"""Tests for the gang annotation of a job and for the names of objects that belong to a gang."""

import pytest
from builders import a_run, a_template

from backend_plugin.core.observed import PodGroup
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling import gang_annotation, registry
from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.core.settings import read

UID = "0a1b2c3d-0000-4000-8000-0123456789ab"


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
        f"pg-f1-n0-0-0123456789ab-{UID}": True,
        "f1-n0-0-0123456789ab-worker-0": False,
        "pg-backup": False,
        "": False,
    }
    assert {name: registry.can_be_gang_object(name) for name in names} == names


@pytest.mark.parametrize(("kind", "queue"), [("Workload", ""), ("LocalQueue", "team")])
def test_only_a_kueue_workload_with_a_queue_has_a_queue_position(kind, queue):
    assert not registry.has_queue_position(PodGroup(kind=kind, api="kueue.x-k8s.io", queue=queue))


def test_job_name_is_parsed_from_the_name_of_a_kai_pod_group():
    assert registry.parse_job_name(f"pg-f1-n0-0-0123456789ab-{UID}") == "f1-n0-0-0123456789ab"
    assert registry.parse_job_name("f1-n0-0-0123456789ab") == "f1-n0-0-0123456789ab"


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
