"""Builds the manifest of a burn-in from the job of a task."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from backend_plugin.core import task_annotation
from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.job import Attempt, Deadlines
from backend_plugin.core.names import CLEAN_POD_POLICY
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import JsonValue, Manifest

_EXECUTION: Final = "burn-in"
_PREFIX: Final = "kfpytorch-doctor://burn-in/"
"""A placeholder that belongs to no store; task outputs are never read from it."""
_KEPT_SECONDS: Final = 600
"""The TTL deletes the job if the command was killed before it could delete it."""
_AFTERWARDS: Final = 60
"""Seconds that the job's deadline exceeds the timeout of the wait."""
_GRACE_SECONDS: Final = 2
"""The first process of a container ignores SIGTERM by default, and the program has nothing to save."""
_AGENT: Final = ("python", "-m", "torch.distributed.run", "--no-python")
_OF_TASK: Final = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "args", "command")
"""Container fields that depend on the program of the task."""


def build_attempt(run: Attempt, token: str) -> Attempt:
    """Return the attempt with the burn-in's identity; each token results in a different job name."""
    labels = {**run.labels, "execution-id": _EXECUTION}
    return replace(run, execution=_EXECUTION, output_prefix=f"{_PREFIX}{token}", labels=labels)


def build_job(job: Manifest, program: str, seconds: int) -> Manifest:
    """Return the job with `program` in place of its command. Placement and resources are unchanged.

    Args:
        job: A PyTorchJob that was planned for an attempt from `build_attempt`.
        program: A program for ``python -c``; its argument is the timeout in seconds for waits between ranks.
        seconds: The timeout of the wait for the job.
    """
    spec, elastic = get_mapping(job, "spec"), get_mapping(job, "spec", "elasticPolicy")
    program_of = ("python", "-c", program, str(seconds))
    command = [*_AGENT, *program_of] if elastic else [*program_of]
    roles = get_mapping(spec, "pytorchReplicaSpecs")
    said = get_mapping(spec, "runPolicy")
    policy = {
        # With backoffLimit, the operator deletes all pods when the limit is exceeded, and ignores
        # cleanPodPolicy.
        **{key: value for key, value in said.items() if key != "backoffLimit"},
        "cleanPodPolicy": "None",  # The logs of the pods are read afterwards.
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "activeDeadlineSeconds": seconds + _AFTERWARDS,
    }
    changed: dict[str, JsonValue] = {
        "pytorchReplicaSpecs": {
            role: _build_replica_spec(get_mapping(roles, role), command) for role in roles
        },
        "runPolicy": policy,
        **({"elasticPolicy": {**elastic, "maxRestarts": 0}} if elastic else {}),
    }
    return {**job, "metadata": _build_metadata(job, seconds), "spec": {**spec, **changed}}


def _build_metadata(job: Manifest, seconds: int) -> Manifest:
    """Replace the deadlines of the task in the annotations, because a connector would apply them."""
    metadata = get_mapping(job, "metadata")
    said = {key: value for key, value in _read_annotations(metadata).items() if key != CLEAN_POD_POLICY}
    known = task_annotation.read(said, get_text(metadata, "namespace"))
    if known is not None:
        deadlines = Deadlines(active_seconds=seconds + _AFTERWARDS)
        said[task_annotation.ANNOTATION] = task_annotation.encode(known.run, deadlines, {})
    return {**metadata, "annotations": said}


def _read_annotations(metadata: Manifest) -> Mapping[str, str]:
    annotations = get_mapping(metadata, "annotations")
    return {key: get_text(annotations, key) for key in annotations}


def _build_replica_spec(role: Manifest, command: list[str]) -> Manifest:
    template, spec = get_mapping(role, "template"), get_mapping(role, "template", "spec")
    containers = [
        _build_container(each, command) if get_text(each, "name") == DEFAULT.container else each
        for each in get_mappings(spec, "containers")
    ]
    whole = {
        **template,
        "spec": {**spec, "containers": containers, "terminationGracePeriodSeconds": _GRACE_SECONDS},
    }
    return {**role, "restartPolicy": "Never", "template": whole}


def _build_container(container: Manifest, command: list[str]) -> Manifest:
    kept = {key: value for key, value in container.items() if key not in _OF_TASK}
    return {**kept, "command": [*command]}
