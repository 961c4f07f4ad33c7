"""Tests for orphan candidates and for the owner patch of a job."""

import json
from datetime import timedelta
from typing import Any

import pytest
from cluster import BEGAN, FAILED, RUNNING, SUCCEEDED, job

from backend_plugin.core import ownership
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.job import OwnerReference
from backend_plugin.embedded.admission import merge_patch

HOUR = timedelta(hours=1)
OWNER = OwnerReference(api_version="flyte.lyft.com/v1alpha1", kind="FlyteWorkflow", name="f1", uid="u1")
PREFIX = "s3://b/f1/n0/0"


def ours(manifest: Any, *, execution: str = "f1", prefix: str = PREFIX, **metadata: Any) -> Any:
    annotations = {
        "kfpytorch.flyte.org/task": json.dumps({"execution": execution, "nodeId": "n0"}),
        "kfpytorch.flyte.org/output-prefix": prefix,
        **metadata.pop("annotations", {}),
    }
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations, **metadata}}


def execution_in_question(manifest: Any, after: timedelta = 3 * HOUR) -> str | None:
    run = ownership.find_orphan_candidate(read_job(manifest), BEGAN + after, HOUR)
    return None if run is None else run.execution


@pytest.mark.parametrize(
    "manifest",
    [
        ours(job(RUNNING)),
        ours(job(started=None)),
        ours(job(RUNNING, ttlSecondsAfterFinished=60)),
        ours(job(SUCCEEDED)),
        ours(job(FAILED)),
    ],
    ids=["it runs", "it has not begun", "it expires, but only after its end", "it is left", "it failed"],
)
def test_job_without_an_owner_is_an_orphan_candidate(manifest: Any) -> None:
    assert execution_in_question(manifest) == "f1"


@pytest.mark.parametrize(
    "manifest",
    [
        ours(job(RUNNING), ownerReferences=[{"kind": "FlyteWorkflow", "uid": "u1"}]),
        ours(job(RUNNING), ownerReferences=[{"kind": "SomebodyElse", "uid": "u1"}]),
        ours(job(RUNNING), annotations={ownership.WORKFLOW: "other-cluster"}),
        ours(job(RUNNING), deletionTimestamp="2026-01-01T00:01:00Z"),
        ours(job(RUNNING), creationTimestamp=None),
        ours(job(SUCCEEDED, ttlSecondsAfterFinished=60)),
        ours(job(RUNNING), execution=""),
        ours(job(RUNNING), prefix=""),
        job(RUNNING),
    ],
    ids=[
        "it has an owner",
        "it has another owner",
        "its execution is elsewhere",
        "it is being deleted",
        "its age is unknown",
        "it expires",
        "it is of no execution",
        "its output prefix is unknown",
        "it is not ours",
    ],
)
def test_job_that_cannot_be_an_orphan_is_no_candidate(manifest: Any) -> None:
    assert execution_in_question(manifest) is None


def test_job_becomes_an_orphan_candidate_after_a_delay_from_creation_and_end() -> None:
    assert execution_in_question(ours(job(RUNNING)), HOUR - timedelta(seconds=1)) is None
    assert execution_in_question(ours(job(RUNNING)), HOUR) == "f1"
    assert execution_in_question(ours(job(SUCCEEDED)), HOUR) is None
    assert execution_in_question(ours(job(SUCCEEDED)), HOUR + timedelta(seconds=100)) == "f1"


@pytest.mark.parametrize("owner", [OWNER, None], ids=["its owner is found", "its execution is elsewhere"])
def test_job_with_an_ownership_patch_is_no_orphan_candidate(owner: OwnerReference | None) -> None:
    manifest = ours(job(RUNNING))
    patched: Any = merge_patch(manifest, ownership.build_ownership_patch(owner))
    assert execution_in_question(patched) is None
    owners = patched["metadata"].pop("ownerReferences", [])
    assert [each["uid"] for each in owners] == ([] if owner is None else ["u1"])
    marks = patched["metadata"]["annotations"]
    assert marks.pop(ownership.WORKFLOW, "") == ("other-cluster" if owner is None else "")
    assert patched == manifest
