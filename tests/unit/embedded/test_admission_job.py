# ruff: noqa: E501 - a row a case
"""Admission of PyTorchJobs: pruning, defaults, and the limit of replicas."""

import copy
from typing import Any

import pytest
from builders import a_run, a_template
from kept_objects import job
from whole_job import WHOLE_JOB

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import read
from backend_plugin.embedded.objects import merge_patch
from backend_plugin.embedded.operators.pytorchjob.admission import admit_job

UDP = {"containerPort": 1, "protocol": "UDP"}


def a_job(pod: Any = None, replicas: int = 1, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "pytorch", "image": "train:1"}]
    worker = {"replicas": replicas, "template": {"spec": {"containers": containers, **(pod or {})}}}
    return job(pytorchReplicaSpecs={"Worker": worker}, **spec)


def a_container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "pytorch", "image": "a", **fields}]}


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (a_job(runPolicy={"suspend": True, "tries": 1}), a_job(runPolicy={"suspend": True})),
        (a_job(scale=2), a_job()),
        (a_job({"hostname": None, "nodeSelector": {"a": None, "b": "c"}}), a_job({"nodeSelector": {"b": "c"}})),
        # The definition is older than these fields of a pod.
        (a_job({"resources": {"limits": {"cpu": "1"}}, "hostnameOverride": "a"}), a_job()),
        (
            a_job(a_container(ports=[{"containerPort": 1}, UDP], envFrom=[{"secretRef": {}, "more": {}}])),
            a_job(a_container(ports=[{**UDP, "protocol": "TCP"}, UDP], envFrom=[{"secretRef": {"name": ""}}])),
        ),
    ],
)  # fmt: skip
def test_job_is_stored_with_defaults_and_without_unknown_fields(sent: Any, stored: Any) -> None:
    assert admit_job(sent) == stored


def test_stored_job_is_admitted_unchanged() -> None:
    before = copy.deepcopy(WHOLE_JOB)
    stored = admit_job(WHOLE_JOB)
    assert before == WHOLE_JOB
    assert admit_job(stored) == stored


def test_admission_drops_no_field_of_a_planned_job() -> None:
    planned: Any = plan(a_template({"workerReplicas": {"replicas": 2}}), a_run(), read({})).job
    stored = admit_job(planned)
    assert merge_patch(stored, planned) == stored


def test_job_with_too_many_replicas_is_rejected() -> None:
    assert admit_job(a_job(replicas=1_000)) == a_job(replicas=1_000)
    with pytest.raises(RequestRejected) as refused:
        admit_job(a_job(replicas=1_001))
    assert refused.value.code == 422
    assert "at most 1000 replicas in total, has 1001" in refused.value.message


# The examples from RFC 7386, appendix A, that have an object as target.
@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        ({"a": "b"}, {"a": None}, {}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_the_rfc(old: Any, patch: Any, new: Any) -> None:
    assert merge_patch(old, patch) == new
