"""Admission of TrainJobs and TrainingRuntimes: defaults, the runtime, and fields that are not supported."""

from collections.abc import Callable
from typing import Any

import pytest
from trainjob_requests import build_objects, change_replicated_job

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.objects import merge_patch
from backend_plugin.embedded.operators.table import OPERATORS

OPERATOR = OPERATORS["TrainJob"]
assert OPERATOR.prerequisite is not None
PREREQUISITE = OPERATOR.prerequisite
JOB, RUNTIME = build_objects()


def test_objects_are_stored_with_defaults() -> None:
    defaults = {"suspend": False, "managedBy": "trainer.kubeflow.org/trainjob-controller"}
    assert OPERATOR.admit(JOB) == merge_patch(JOB, {"spec": defaults})
    assert PREREQUISITE.admit(RUNTIME) == change_replicated_job(
        RUNTIME, {"groupName": "default", "replicas": 1}
    )


def test_job_without_its_runtime_is_rejected() -> None:
    job = OPERATOR.admit(JOB)
    PREREQUISITE.require(job, RUNTIME)
    with pytest.raises(RequestRejected) as caught:
        PREREQUISITE.require(job, None)
    assert caught.value.code == 403
    assert OPERATOR.dialect.is_premature(caught.value.message)


def test_runtime_with_initializers_is_rejected_with_one_reason() -> None:
    job = {"name": "dataset-initializer", "template": {"spec": {"template": {"spec": {"containers": []}}}}}
    change = {"spec": {"template": {"spec": {"replicatedJobs": [job], "volumeClaimPolicies": []}}}}
    with pytest.raises(RequestRejected) as caught:
        PREREQUISITE.admit(merge_patch(RUNTIME, change))
    assert caught.value.code == 422
    assert "runs no initializers" in caught.value.message
    assert "volumeClaimPolicies" not in caught.value.message


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
