"""Compares the API admission of the embedded cluster with the real API server, for random jobs.

`KFPYTORCH_SEED=random` selects a random seed.
"""

import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from random import Random
from typing import Any

import pytest
from rig.api import jobs, pods
from rig.seed import SEED
from tree_mutations import mutate
from whole_job import WHOLE_JOB

from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.pod_schema import PARTS
from backend_plugin.core.schema_check import parse_types
from backend_plugin.embedded.admission import admit_pod
from backend_plugin.embedded.operators.base import Create, JobSnapshot
from backend_plugin.embedded.operators.pytorchjob.admission import JOB_PARTS, SCHEMA
from backend_plugin.embedded.operators.pytorchjob.reconciler import reconcile

MANIFESTS, LEAST_ACCEPTED = 1_500, 700
AT_ONCE = 8
NAMESPACE = "default"
STRICT = "strict decoding error: "
ODD = (
    *(None, True, 0, 3, 2.0, "", "x", "1Gi"),
    *([], {}, [None], {"name": "x"}, [{"name": "x"}], {"x": "y"}),
)
SCALARS = {
    "string": ("a", "b", "x1", "/a", "Always", "IfNotPresent", "a.b/c", "TCP", "", "a b"),
    "bool": (True, False),
    "int32": (0, 1, 2, 80, -1, 70000),
    "int64": (0, 1, 30, -1, 2**33),
    "intstr": (80, "http", 0, "80"),
    "object": ({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Value"}}},),
    "quantity": ("1", "500m", 2, "1Gi", "0.5", "-1", "1e3"),
}
TYPES = parse_types(PARTS + JOB_PARTS)
# The probabilities of a field. The types of required fields end in `*`, and those of some optional ones in
# `!`. For the others it decreases with depth, because types of pods are nested deeply.
NEEDED, MORE = 0.95, (0.5, 0.35, 0.25, 0.15, 0.1)

pytestmark = pytest.mark.timeout(600)

Job = dict[str, Any]


def build_job(chance):
    """Return a PyTorchJob that may be invalid: it has added, removed or odd fields."""
    # The copy has no parts that are shared between several places.
    spec = json.loads(json.dumps(WHOLE_JOB["spec"]))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        if chance.random() < 0.4:
            mutate(spec, chance, ODD)
        else:
            holder, part = chance.choice([*iter_objects(spec, "PyTorchJobSpec")])
            name = chance.choice([*TYPES[part]])
            holder[name] = build_value(TYPES[part][name], chance, 0)
    return {**WHOLE_JOB, "spec": spec}


def build_value(kind, chance, depth):
    """Return a value of this type, or seldom another one."""
    kind = kind.rstrip("!*")
    if chance.random() < 0.01:
        return chance.choice(ODD)
    if kind in SCALARS:
        return chance.choice(SCALARS[kind])
    if kind.startswith("["):
        return [build_value(kind[1:-1], chance, depth + 1) for _ in range(chance.choice((0, 1, 1, 2)))]
    if kind.startswith("{"):
        return {chance.choice(("a", "b.c/d", "cpu")): build_value(kind[1:-1], chance, depth + 1)}
    more = MORE[min(depth, len(MORE) - 1)]
    return {
        name: build_value(each, chance, depth + 1)
        for name, each in TYPES[kind].items()
        if chance.random() < (NEEDED if each.endswith(("!", "*")) else more)
    }


def iter_objects(value, kind):
    kind = kind.rstrip("!*")
    if isinstance(value, dict) and kind in TYPES:
        yield value, kind
        parts = [(each, TYPES[kind].get(name, "")) for name, each in value.items()]
    elif isinstance(value, list | dict):
        children = value if isinstance(value, list) else value.values()
        parts = [(each, kind[1:-1]) for each in children]
    else:
        return
    for each, inner in parts:
        yield from iter_objects(each, inner)


@pytest.fixture(scope="module")
def accepted(plane):
    """The random jobs that the API server and the webhook accept, each as sent and as stored."""
    sent = [build_job(Random(f"{SEED}-{number}")) for number in range(MANIFESTS)]
    answers = create_all(plane, jobs(NAMESPACE), sent, fieldValidation="Ignore")
    made = [(each, content) for each, (code, content) in zip(sent, answers, strict=True) if code == 201]
    assert len(made) >= LEAST_ACCEPTED
    return made


def create_all(plane, path, bodies, **how):
    """Yield the response to each body: the code, and either the object or the reason and message."""

    def create(body):
        answer = plane.admin.request("POST", path, body, params={"dryRun": "All", **how})
        content = answer.json()
        return answer.status_code, content if answer.is_success else (
            content.get("reason", ""),
            content["message"],
        )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(create, bodies)


def is_unknown(sent, stored):
    """True if a part of `sent`, other than null values, is missing in `stored`."""
    if isinstance(sent, Mapping):
        there = {key: value for key, value in sent.items() if value is not None}
        return any(key not in stored or is_unknown(value, stored[key]) for key, value in there.items())
    return isinstance(sent, list) and any(map(is_unknown, sent, stored))


def is_about_class(answer):
    """True if a PriorityClass or RuntimeClass is missing or overridden, which the API server checks first."""
    classes = "no PriorityClass with name|RuntimeClass .* not found|must not be provided in pod spec"
    return answer[0] == 403 and re.search(classes, answer[1][1]) is not None


def report(differing):
    text = "\n\n".join("\n".join(json.dumps(part, default=str) for part in each) for each in differing[:5])
    return f"{len(differing)} differ, with KFPYTORCH_SEED={SEED}:\n{text}"


def test_jobs_are_stored_as_by_the_api_server(accepted):
    trios = [(sent, theirs["spec"], SCHEMA.prune_object(sent)["spec"]) for sent, theirs in accepted]
    differing = [each for each in trios if each[1] != each[2]]
    assert not differing, report(differing)


def test_dropped_fields_are_those_that_strict_validation_rejects(plane, accepted):
    jobs_sent = [sent for sent, _ in accepted]
    answers = create_all(plane, jobs(NAMESPACE), jobs_sent, fieldValidation="Strict")
    differing = [
        (sent, answer)
        for sent, answer in zip(jobs_sent, answers, strict=True)
        if is_unknown(sent, SCHEMA.prune_object(sent)) != (answer[0] != 201 and STRICT in answer[1][1])
    ]
    assert not differing, report(differing)


def test_rejected_pods_are_rejected_by_the_api_server_too(plane, accepted):
    made = {json.dumps(pod): pod for sent, _ in accepted for pod in build_pods(sent)}
    refused = [(pod, refusal) for pod in made.values() if (refusal := find_refusal(pod)) is not None]
    theirs = create_all(plane, pods(NAMESPACE), [pod for pod, _ in refused])
    differing = [
        (pod, ours.message, answer)
        for (pod, ours), answer in zip(refused, theirs, strict=True)
        if (ours.code, ours.reason) != (answer[0], answer[1][0]) and not is_about_class(answer)
    ]
    assert not differing, report(differing)


def build_pods(sent):
    """Yield the pods that the controller first creates for a job."""
    stored = SCHEMA.prune_object(sent)
    job = {**stored, "metadata": {**stored["metadata"], "uid": "uid"}}
    snapshot = JobSnapshot(job=job, pods=[], services=[], now=datetime(2026, 1, 1, tzinfo=timezone.utc))
    created = [each.manifest for each in reconcile(snapshot).actions if isinstance(each, Create)]
    yield from (each for each in created if each["kind"] == "Pod")


def find_refusal(pod):
    try:
        admit_pod(pod)
    except RequestRejected as refusal:
        return refusal
    return None
