"""Requests about TrainJobs and TrainingRuntimes, with the status codes of Trainer 2.3.0."""

from collections.abc import Mapping
from typing import Any, Final

from builders import a_run, a_template

from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import read
from backend_plugin.embedded.admission import merge_patch

NAMESPACE: Final = "trainer-requests"

Manifest = dict[str, Any]


def build_objects(nodes: int = 2) -> tuple[Manifest, Manifest]:
    """Return a TrainJob and its TrainingRuntime."""
    custom = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": nodes - 1}}
    settings = read({"kfpytorch": {"dialect": "trainjob"}})
    planned = plan(a_template(custom), a_run(namespace=NAMESPACE), settings)
    (runtime,) = planned.prerequisites
    return {**planned.job}, {**runtime}


def change_replicated_job(runtime: Mapping[str, Any], change: Manifest) -> Manifest:
    """Return a runtime whose replicated job is changed by a merge patch."""
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    jobs = [merge_patch(replicated, change)]
    return {**merge_patch(runtime, {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}})}


def build_template(**pod_spec: Any) -> Manifest:
    return {"template": {"spec": {"template": {"spec": pod_spec}}}}


NAMED: Final = {"runtimeRef": {"kind": "TrainingRuntime", "name": "nope"}}
CREATIONS: Final[Mapping[str, tuple[Manifest, int]]] = {
    "valid": ({}, 201),
    "suspended": ({"spec": {"suspend": True}}, 201),
    "no trainer": ({"spec": {"trainer": None}}, 201),
    "no node": ({"spec": {"trainer": {"numNodes": 0}}}, 201),
    "negative nodes": ({"spec": {"trainer": {"numNodes": -1}}}, 201),
    "upper case": ({"metadata": {"name": "Job"}}, 422),
    "a digit first": ({"metadata": {"name": "1job"}}, 422),
    "two labels in the name": ({"metadata": {"name": "a.b"}}, 422),
    "64 characters": ({"metadata": {"name": "a" * 64}}, 422),
    "63 characters": ({"metadata": {"name": "a" * 63}}, 201),
    "no runtime": ({"spec": NAMED}, 403),
    "no cluster runtime": ({"spec": {"runtimeRef": {"kind": None, "name": "nope"}}}, 403),
    "another kind of runtime": ({"spec": {"runtimeRef": {"kind": "Foo"}}}, 403),
    "another group of runtime": ({"spec": {"runtimeRef": {"apiGroup": "foo.example.com"}}}, 403),
    "no name of a runtime": ({"spec": {"runtimeRef": {"name": ""}}}, 422),
    "no reference": ({"spec": {"runtimeRef": None}}, 422),
    "unknown manager": ({"spec": {"managedBy": "me"}}, 422),
    "another manager": ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, 201),
    "processes as text": ({"spec": {"trainer": {"numProcPerNode": "auto"}}}, 400),
    "nodes as text": ({"spec": {"trainer": {"numNodes": "2"}}}, 400),
    "too many nodes": ({"spec": {"trainer": {"numNodes": 2**31}}}, 400),
    "suspended as text": ({"spec": {"suspend": "yes"}}, 400),
    "invalid label": ({"metadata": {"labels": {"a": "b c"}}}, 422),
}
"""Merge patches of a valid TrainJob."""
CHANGES: Final[Mapping[str, tuple[Manifest, int]]] = {
    "suspended": ({"spec": {"suspend": True}}, 200),
    "annotated": ({"metadata": {"annotations": {"a": "b"}}}, 200),
    "more nodes": ({"spec": {"trainer": {"numNodes": 3}}}, 422),
    "another runtime": ({"spec": NAMED}, 422),
    "another manager": ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, 422),
}
"""Merge patches of a stored TrainJob."""
RUNTIMES: Final[Mapping[str, tuple[Manifest, int]]] = {
    "valid": ({}, 201),
    "two replicas": ({"replicas": 2}, 403),
    "another container": (build_template(containers=[{"name": "pytorch", "image": "i"}]), 403),
    "a container without a name": (build_template(containers=[{"image": "i"}]), 422),
    "a wrong type": (build_template(hostNetwork="yes"), 422),
    "two equal containers": (build_template(containers=[{"name": "node", "image": "i"}] * 2), 422),
    "a limit as text": ({"template": {"spec": {"backoffLimit": "0"}}}, 422),
}
"""Merge patches of the replicated job of a valid TrainingRuntime."""
