"""Whatever is sent, it is let in or refused; and of what is let in, pods are made or refused."""

import copy
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core.errors import Refused
from backend_plugin.embedded.admission import admit, admit_pod, admit_service, admit_update
from backend_plugin.embedded.controller import CreatePod, CreateService, Seen, reconcile

CONTAINER = {
    "name": "pytorch",
    "image": "train:1",
    "args": ["a"],
    "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"secretKeyRef": {"key": "k"}}}],
    "ports": [{"name": "metrics", "containerPort": 80}],
    "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": 1}, "requests": {"cpu": "500m"}},
    "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm", "subPath": "a"}],
    "readinessProbe": {"exec": {"command": ["true"]}},
    "securityContext": {"privileged": False},
}
POD = {
    "containers": [CONTAINER],
    "initContainers": [{"name": "first", "image": "a"}],
    "volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "nodeSelector": {"a": "b"},
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "b"}],
    "hostname": "a",
    "terminationGracePeriodSeconds": 3,
    "activeDeadlineSeconds": 9,
}
ROLE = {
    "replicas": 1,
    "restartPolicy": "Never",
    "template": {
        "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a/b"]},
        "spec": POD,
    },
}
JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {
        "name": "job",
        "namespace": "ns",
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "finalizers": ["a/b"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "a", "name": "b", "uid": "c"}],
    },
    "spec": {
        "nprocPerNode": "1",
        "pytorchReplicaSpecs": {"Master": ROLE, "Worker": ROLE},
        "runPolicy": {"cleanPodPolicy": "All", "backoffLimit": 1, "schedulingPolicy": {"queue": "a"}},
        "elasticPolicy": {
            "minReplicas": 1,
            "rdzvConf": [{"key": "a", "value": "b"}],
            "metrics": [{"type": "a"}],
        },
    },
}
ODD: list[Any] = [
    *(None, True, 0, -1, 3, 0.5, 2.0, 2**31, 2**70, float("inf"), float("nan")),
    *("", "x", "Always", "a b", "é\n", "\x00", "1Gi", "x" * 300),
    *([], {}, [[]], [None], {"": {}}, ["x", 1], {"name": "x"}, [{"name": "x"}, {"name": "x"}]),
]


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Every place of a value in which something else might be."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield (*path, key)
        yield from places(child, *path, key)


PLACES = list(places(JOB))
CHANGES = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD)), min_size=1, max_size=3)


def changed(changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    job = copy.deepcopy(JOB)
    for path, odd in changes:
        parent: Any = job
        try:
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = copy.deepcopy(odd)  # The next change may be within it.
        except (KeyError, IndexError, TypeError):  # An earlier change has left no such place.
            continue
    return job


def admitted(job: Any) -> Any:
    try:
        return admit(job)
    except Refused:
        return None


@given(CHANGES)
def test_what_arrives_is_let_in_or_refused(changes: Any) -> None:
    job = changed(changes)
    before = copy.deepcopy(job)
    stored = admitted(job)
    assert repr(job) == repr(before)
    if stored is None:
        return
    # What is stored is stored again as it is, and may be changed into itself.
    assert admit(stored) == stored
    assert admit_update(stored, stored) == stored


@given(CHANGES)
def test_of_what_is_let_in_pods_are_made_or_refused(changes: Any) -> None:
    stored = admitted(changed(changes))
    if stored is None:
        return
    job = {**stored, "metadata": {**stored["metadata"], "uid": "uid"}}
    seen = Seen(job=job, pods=[], services=[], now=datetime(2026, 1, 1, tzinfo=timezone.utc))
    codes = {code_of(action) for action in reconcile(seen).actions}
    assert codes <= {201, 400, 422}


def code_of(action: Any) -> int:
    """With which the API server answers when the controller makes something."""
    try:
        match action:
            case CreatePod(manifest):
                admit_pod(manifest)
            case CreateService(manifest):
                admit_service(manifest)
    except Refused as refusal:
        return refusal.code
    return 201


def test_the_job_that_is_changed_is_a_good_one() -> None:
    stored = admitted({**JOB, "spec": {**JOB["spec"], "runPolicy": {"suspend": False}}})
    assert stored is not None
