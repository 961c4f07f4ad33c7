"""Compares the API admission of the embedded cluster with the real API server and webhook, for random jobs.

`KFPYTORCH_SEED=random` selects a random seed.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import cache
from random import Random
from typing import Any

import pytest
from rig.api import jobs, pods
from rig.control_plane import ControlPlane
from rig.seed import SEED
from simulated_operator.manifests import NAMESPACE, manifest

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.admission import admit_pod
from backend_plugin.embedded.operators.base import CreatePod, JobSnapshot
from backend_plugin.embedded.operators.pytorchjob import admit_job, reconcile

MANIFESTS = 1_500
AT_ONCE = 8
SENT = ("labels", "annotations", "finalizers", "ownerReferences")
STRICT = "strict decoding error: "

pytestmark = pytest.mark.timeout(600)


@cache
def manifests() -> Sequence[dict[str, Any]]:
    return [manifest(Random(f"{SEED}-{number}")) for number in range(MANIFESTS)]


def create_all(plane: ControlPlane, path: str, bodies: Sequence[Any], **how: str) -> Iterator[Any]:
    """Yield the response to each body: the code, and either the object or the reason and message."""

    def create(body: Any) -> tuple[int, Any]:
        answer = plane.admin.request("POST", path, body, params={"dryRun": "All", **how})
        content = answer.json()
        return answer.status_code, content if answer.is_success else (
            content.get("reason", ""),
            content["message"],
        )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(create, bodies)


def build_response(admitted: Callable[[], Any]) -> tuple[int, Any]:
    """Return the same for an admission by the embedded cluster."""
    try:
        return 201, admitted()
    except RequestRejected as refusal:
        return refusal.code, (refusal.reason, refusal.message)


def compared(answer: tuple[int, Any]) -> Any:
    """Return the code and reason, or the stored object. The order of sentences in a message is not stable."""
    code, content = answer
    if code != 201:
        return code, content[0]
    return {"spec": content.get("spec"), **{field: content["metadata"].get(field) for field in SENT}}


def unknown(sent: Any, stored: Any) -> bool:
    """True if a part of `sent`, other than null values, is missing in `stored`."""
    if isinstance(sent, Mapping):
        there = {key: value for key, value in sent.items() if value is not None}
        return any(key not in stored or unknown(value, stored[key]) for key, value in there.items())
    return isinstance(sent, list) and any(map(unknown, sent, stored))


def misses_a_class(answer: tuple[int, Any]) -> bool:
    """True if the PriorityClass or RuntimeClass is missing, which the API server checks first."""
    classes = "no PriorityClass with name|RuntimeClass .* not found"
    return answer[0] == 403 and re.search(classes, answer[1][1]) is not None


def report(differing: Sequence[Any]) -> str:
    text = "\n\n".join("\n".join(json.dumps(part, default=str) for part in each) for each in differing[:5])
    return f"{len(differing)} differ, with KFPYTORCH_SEED={SEED}:\n{text}"


def test_job_admission_equals_that_of_the_api_server(plane: ControlPlane) -> None:
    theirs = create_all(plane, jobs(NAMESPACE), manifests(), fieldValidation="Ignore")
    ours = (build_response(lambda each=each: admit_job(each, upstream=True)) for each in manifests())
    trios = zip(manifests(), theirs, ours, strict=True)
    differing = [each for each in trios if compared(each[1]) != compared(each[2])]
    assert not differing, report(differing)


def test_dropped_fields_are_those_that_strict_validation_rejects(plane: ControlPlane) -> None:
    stored = [
        (each, build_response(lambda each=each: admit_job(each, upstream=True))) for each in manifests()
    ]
    accepted = [(each, job) for each, (code, job) in stored if code == 201]
    answers = create_all(plane, jobs(NAMESPACE), [each for each, _ in accepted], fieldValidation="Strict")
    differing = [
        (each, answer)
        for (each, job), answer in zip(accepted, answers, strict=True)
        if unknown(each.get("spec"), job.get("spec")) != (answer[0] != 201 and STRICT in answer[1][1])
    ]
    assert not differing, report(differing)


def test_rejected_pods_are_rejected_by_the_api_server_too(plane: ControlPlane) -> None:
    made = {json.dumps(pod): pod for each in manifests() for pod in made_of(each)}
    refused = [(pod, build_response(lambda pod=pod: admit_pod(pod))) for pod in made.values()]
    refused = [(pod, answer) for pod, answer in refused if answer[0] != 201]
    theirs = create_all(plane, pods(NAMESPACE), [pod for pod, _ in refused])
    differing = [
        (pod, ours, answer)
        for (pod, ours), answer in zip(refused, theirs, strict=True)
        if compared(ours) != compared(answer) and not misses_a_class(answer)
    ]
    assert not differing, report(differing)


def made_of(each: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the pods that the controller first creates for a job."""
    code, job = build_response(lambda: admit_job(each, upstream=True))
    if code == 201:
        job = {**job, "metadata": {**job["metadata"], "uid": "uid"}}
        snapshot = JobSnapshot(job=job, pods=[], services=[], now=datetime(2026, 1, 1, tzinfo=timezone.utc))
        yield from (
            action.manifest for action in reconcile(snapshot).actions if isinstance(action, CreatePod)
        )
