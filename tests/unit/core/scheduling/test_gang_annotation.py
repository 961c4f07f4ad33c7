"""Tests for the gang annotation of a job and for the names of objects that belong to a gang."""

import pytest

from backend_plugin.core.observed import PodGroup
from backend_plugin.core.scheduling import gang_annotation, registry

UID = "0a1b2c3d-0000-4000-8000-0123456789ab"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"roles": 1}', "\ud800", "[" * 5_000])
def test_unreadable_annotation_is_an_empty_gang_summary(text):
    assert gang_annotation.read_gang_summary({gang_annotation.ANNOTATION: text}) == gang_annotation.NO_GANG


@pytest.mark.parametrize(("count", "amount"), [("1", "x"), ("1", "1e99"), ("9" * 4_000, "1"), ("-1", "1")])
def test_invalid_amount_has_no_total(count, amount):
    roles = f'[{{"name": "worker", "count": {count}, "requests": {{"cpu": "{amount}"}}}}]'
    gang = gang_annotation.read_gang_summary({gang_annotation.ANNOTATION: f'{{"roles": {roles}}}'})
    assert gang.compute_total("cpu") is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tg-f6aa670617356-n0-0-ed00cc3d4-worker-41ygdl47ro", True),
        (f"pg-f1-n0-0-0123456789ab-{UID}", True),
        ("f1-n0-0-0123456789ab-worker-0", False),
        ("pg-backup", False),
        ("", False),
    ],
)
def test_gang_object_is_recognized_by_its_name(name, expected):
    assert registry.can_be_gang_object(name) is expected


@pytest.mark.parametrize(("kind", "queue"), [("Workload", ""), ("LocalQueue", "team")])
def test_only_a_kueue_workload_with_a_queue_has_a_queue_position(kind, queue):
    assert not registry.has_queue_position(PodGroup(kind=kind, api="kueue.x-k8s.io", queue=queue))


def test_job_name_is_parsed_from_the_name_of_a_kai_pod_group():
    assert registry.parse_job_name(f"pg-f1-n0-0-0123456789ab-{UID}") == "f1-n0-0-0123456789ab"
    assert registry.parse_job_name("f1-n0-0-0123456789ab") == "f1-n0-0-0123456789ab"
