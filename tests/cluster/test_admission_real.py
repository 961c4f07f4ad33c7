"""Compares the API admission of the embedded cluster with the real API server, for random jobs.

`KFPYTORCH_SEED=random` selects a random seed.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
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
from backend_plugin.embedded.operators.pytorchjob import reconcile
from backend_plugin.embedded.operators.pytorchjob.job_schema import SCHEMA

MANIFESTS, LEAST_ACCEPTED = 1_500, 700
AT_ONCE = 8
STRICT = "strict decoding error: "

pytestmark = pytest.mark.timeout(600)

Job = dict[str, Any]


@pytest.fixture(scope="module")
def accepted(plane: ControlPlane) -> Sequence[tuple[Job, Job]]:
    """The random jobs that the API server and the webhook accept, each as sent and as stored."""
    sent = [manifest(Random(f"{SEED}-{number}")) for number in range(MANIFESTS)]
    answers = create_all(plane, jobs(NAMESPACE), sent, fieldValidation="Ignore")
    made = [(each, content) for each, (code, content) in zip(sent, answers, strict=True) if code == 201]
    assert len(made) >= LEAST_ACCEPTED
    return made


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


def is_unknown(sent: Any, stored: Any) -> bool:
    """True if a part of `sent`, other than null values, is missing in `stored`."""
    if isinstance(sent, Mapping):
        there = {key: value for key, value in sent.items() if value is not None}
        return any(key not in stored or is_unknown(value, stored[key]) for key, value in there.items())
    return isinstance(sent, list) and any(map(is_unknown, sent, stored))


def lacks_class(answer: tuple[int, Any]) -> bool:
    """True if the PriorityClass or RuntimeClass is missing, which the API server checks first."""
    classes = "no PriorityClass with name|RuntimeClass .* not found"
    return answer[0] == 403 and re.search(classes, answer[1][1]) is not None


def report(differing: Sequence[Any]) -> str:
    text = "\n\n".join("\n".join(json.dumps(part, default=str) for part in each) for each in differing[:5])
    return f"{len(differing)} differ, with KFPYTORCH_SEED={SEED}:\n{text}"


def test_jobs_are_stored_as_by_the_api_server(accepted: Sequence[tuple[Job, Job]]) -> None:
    trios = [(sent, theirs["spec"], SCHEMA.prune_object(sent)["spec"]) for sent, theirs in accepted]
    differing = [each for each in trios if each[1] != each[2]]
    assert not differing, report(differing)


def test_dropped_fields_are_those_that_strict_validation_rejects(
    plane: ControlPlane, accepted: Sequence[tuple[Job, Job]]
) -> None:
    jobs_sent = [sent for sent, _ in accepted]
    answers = create_all(plane, jobs(NAMESPACE), jobs_sent, fieldValidation="Strict")
    differing = [
        (sent, answer)
        for sent, answer in zip(jobs_sent, answers, strict=True)
        if is_unknown(sent, SCHEMA.prune_object(sent)) != (answer[0] != 201 and STRICT in answer[1][1])
    ]
    assert not differing, report(differing)


def test_rejected_pods_are_rejected_by_the_api_server_too(
    plane: ControlPlane, accepted: Sequence[tuple[Job, Job]]
) -> None:
    made = {json.dumps(pod): pod for sent, _ in accepted for pod in build_pods(sent)}
    refused = [(pod, refusal) for pod in made.values() if (refusal := find_refusal(pod)) is not None]
    theirs = create_all(plane, pods(NAMESPACE), [pod for pod, _ in refused])
    differing = [
        (pod, ours.message, answer)
        for (pod, ours), answer in zip(refused, theirs, strict=True)
        if (ours.code, ours.reason) != (answer[0], answer[1][0]) and not lacks_class(answer)
    ]
    assert not differing, report(differing)


def build_pods(sent: Job) -> Iterator[Any]:
    """Yield the pods that the controller first creates for a job."""
    stored = SCHEMA.prune_object(sent)
    job = {**stored, "metadata": {**stored["metadata"], "uid": "uid"}}
    snapshot = JobSnapshot(job=job, pods=[], services=[], now=datetime(2026, 1, 1, tzinfo=timezone.utc))
    yield from (action.manifest for action in reconcile(snapshot).actions if isinstance(action, CreatePod))


def find_refusal(pod: Any) -> RequestRejected | None:
    try:
        admit_pod(pod)
    except RequestRejected as refusal:
        return refusal
    return None
