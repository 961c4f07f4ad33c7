"""Property tests: each object is admitted or rejected, and so is each pod of an admitted job."""

import copy
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from whole_job import WHOLE_JOB

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.admission import admit_pod, admit_service
from backend_plugin.embedded.operators.base import CreatePod, CreateService, JobSnapshot
from backend_plugin.embedded.operators.pytorchjob import admit_job, admit_job_update, reconcile

ODD: list[Any] = [
    *(None, True, 0, -1, 3, 0.5, 2.0, 2**31, 2**70, float("inf"), float("nan")),
    *("", "x", "Always", "a b", "é\n", "\x00", "1Gi", "x" * 300),
    *([], {}, [[]], [None], {"": {}}, ["x", 1], {"name": "x"}, [{"name": "x"}, {"name": "x"}]),
]


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value within a value."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield (*path, key)
        yield from places(child, *path, key)


PLACES = list(places(WHOLE_JOB))
CHANGES = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD)), min_size=1, max_size=3)


def changed(changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    job = copy.deepcopy(WHOLE_JOB)
    for path, odd in changes:
        parent: Any = job
        try:
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = copy.deepcopy(odd)  # The next change may be within it.
        except (KeyError, IndexError, TypeError):  # An earlier change removed the path.
            continue
    return job


def admitted(job: Any) -> Any:
    try:
        return admit_job(job)
    except RequestRejected:
        return None


@given(CHANGES)
def test_job_is_admitted_or_rejected(changes: Any) -> None:
    job = changed(changes)
    before = copy.deepcopy(job)
    stored = admitted(job)
    assert repr(job) == repr(before)
    if stored is None:
        return
    # A stored job is admitted unchanged, and may be updated to itself.
    assert admit_job(stored) == stored
    assert admit_job_update(stored, stored) == stored


@given(CHANGES)
def test_pods_of_an_admitted_job_are_created_or_rejected(changes: Any) -> None:
    stored = admitted(changed(changes))
    if stored is None:
        return
    job = {**stored, "metadata": {**stored["metadata"], "uid": "uid"}}
    snapshot = JobSnapshot(job=job, pods=[], services=[], now=datetime(2026, 1, 1, tzinfo=timezone.utc))
    codes = {code_of(action) for action in reconcile(snapshot).actions}
    assert codes <= {201, 400, 422}


def code_of(action: Any) -> int:
    """Return the status code of the API server for an action of the controller."""
    try:
        match action:
            case CreatePod(manifest):
                admit_pod(manifest)
            case CreateService(manifest):
                admit_service(manifest)
    except RequestRejected as refusal:
        return refusal.code
    return 201


def test_base_job_of_the_mutations_is_admitted() -> None:
    stored = admitted({**WHOLE_JOB, "spec": {**WHOLE_JOB["spec"], "runPolicy": {"suspend": False}}})
    assert stored is not None
