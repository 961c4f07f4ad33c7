"""Admission of TrainJobs and TrainingRuntimes: the status codes, and the fields that are not supported."""

from collections.abc import Callable
from typing import Any

import pytest
from trainjob_requests import CHANGES, CREATIONS, RUNTIMES, build_objects, change_replicated_job

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.admission import merge_patch
from backend_plugin.embedded.operators.table import OPERATORS

OPERATOR = OPERATORS["TrainJob"]
assert OPERATOR.prerequisite is not None
PREREQUISITE = OPERATOR.prerequisite
JOB, RUNTIME = build_objects()


def get_code(admit: Callable[[], Any], success: int) -> int:
    try:
        admit()
    except RequestRejected as refusal:
        return refusal.code
    return success


def create(job: Any) -> None:
    admitted = OPERATOR.admit(job)
    found = PREREQUISITE.find(admitted)
    PREREQUISITE.require(admitted, RUNTIME if found == PREREQUISITE.find(JOB) else None)


@pytest.mark.parametrize(("change", "code"), CREATIONS.values(), ids=CREATIONS)
def test_job_creation_is_admitted_or_rejected(change: Any, code: int) -> None:
    assert get_code(lambda: create(merge_patch(JOB, change)), 201) == code


@pytest.mark.parametrize(("change", "code"), CHANGES.values(), ids=CHANGES)
def test_job_update_is_admitted_or_rejected(change: Any, code: int) -> None:
    stored = OPERATOR.admit(JOB)
    assert get_code(lambda: OPERATOR.admit_update(stored, merge_patch(stored, change)), 200) == code


@pytest.mark.parametrize(("change", "code"), RUNTIMES.values(), ids=RUNTIMES)
def test_runtime_creation_is_admitted_or_rejected(change: Any, code: int) -> None:
    assert get_code(lambda: PREREQUISITE.admit(change_replicated_job(RUNTIME, change)), 201) == code


def test_runtime_with_initializers_is_rejected_with_one_reason() -> None:
    job = {"name": "dataset-initializer", "template": {"spec": {"template": {"spec": {"containers": []}}}}}
    change = {"spec": {"template": {"spec": {"replicatedJobs": [job], "volumeClaimPolicies": []}}}}
    with pytest.raises(RequestRejected) as caught:
        PREREQUISITE.admit(merge_patch(RUNTIME, change))
    assert caught.value.code == 422
    assert "runs no initializers" in caught.value.message
    assert "volumeClaimPolicies" not in caught.value.message


def test_update_keeps_the_status() -> None:
    stored = {**OPERATOR.admit(JOB), "status": {"conditions": []}}
    changed = OPERATOR.admit_update(stored, {**stored, "status": {}})
    assert changed["status"] == {"conditions": []}


def with_spec(manifest: Any, **spec: Any) -> Any:
    return merge_patch(manifest, {"spec": spec})


@pytest.mark.parametrize(
    ("admit", "manifest", "field"),
    [
        (OPERATOR.admit, with_spec(JOB, runtimePatches=[]), "spec.runtimePatches"),
        (OPERATOR.admit, with_spec(JOB, trainer={"image": "i"}), "spec.trainer.image"),
        (OPERATOR.admit, with_spec(JOB, trainer={"numNodes": 1001}), "spec.trainer.numNodes"),
        (PREREQUISITE.admit, with_spec(RUNTIME, mlPolicy={"torch": {}}), "spec.mlPolicy.torch"),
        (PREREQUISITE.admit, with_spec(RUNTIME, mlPolicy={"numNodes": 1001}), "numNodes"),
        (PREREQUISITE.admit, change_replicated_job(RUNTIME, {"name": "launcher"}), "replicatedJobs"),
    ],
)
def test_unsupported_field_is_rejected(admit: Callable[[Any], Any], manifest: Any, field: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        admit(manifest)
    assert caught.value.code == 422
    assert field in str(caught.value)
