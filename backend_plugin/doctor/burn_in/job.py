"""Builds the manifest of a burn-in from the job of a task."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from backend_plugin.core import origin
from backend_plugin.core.job import TRAINER, Deadlines, Run
from backend_plugin.core.manifest.pytorchjob import CLEAN_POD_POLICY
from backend_plugin.core.reading import entries, section, text
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


def run_of(run: Run, token: str) -> Run:
    """Return the attempt with the burn-in's identity; each token results in a different job name."""
    labels = {**run.labels, "execution-id": _EXECUTION}
    return replace(run, execution=_EXECUTION, output_prefix=f"{_PREFIX}{token}", labels=labels)


def of(job: Manifest, program: str, seconds: int) -> Manifest:
    """Return the job with `program` in place of its command. Placement and resources are unchanged.

    Args:
        job: A PyTorchJob that was planned for an attempt from `run_of`.
        program: A program for ``python -c``; its argument is the timeout in seconds for waits between ranks.
        seconds: The timeout of the wait for the job.
    """
    spec, elastic = section(job, "spec"), section(job, "spec", "elasticPolicy")
    program_of = ("python", "-c", program, str(seconds))
    command = [*_AGENT, *program_of] if elastic else [*program_of]
    roles = section(spec, "pytorchReplicaSpecs")
    said = section(spec, "runPolicy")
    policy = {
        # With backoffLimit, the operator deletes all pods when the limit is exceeded, and ignores
        # cleanPodPolicy.
        **{key: value for key, value in said.items() if key != "backoffLimit"},
        "cleanPodPolicy": "None",  # The logs of the pods are read afterwards.
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "activeDeadlineSeconds": seconds + _AFTERWARDS,
    }
    changed: dict[str, JsonValue] = {
        "pytorchReplicaSpecs": {role: _replicas(section(roles, role), command) for role in roles},
        "runPolicy": policy,
        **({"elasticPolicy": {**elastic, "maxRestarts": 0}} if elastic else {}),
    }
    return {**job, "metadata": _metadata(job, seconds), "spec": {**spec, **changed}}


def _metadata(job: Manifest, seconds: int) -> Manifest:
    """Replace the deadlines of the task in the annotations, because a connector would apply them."""
    metadata = section(job, "metadata")
    said = {key: value for key, value in _texts(metadata).items() if key != CLEAN_POD_POLICY}
    known = origin.read(said, text(metadata, "namespace"))
    if known is not None:
        deadlines = Deadlines(active_seconds=seconds + _AFTERWARDS)
        said[origin.ANNOTATION] = origin.encode(known.run, deadlines, {})
    return {**metadata, "annotations": said}


def _texts(metadata: Manifest) -> Mapping[str, str]:
    annotations = section(metadata, "annotations")
    return {key: text(annotations, key) for key in annotations}


def _replicas(role: Manifest, command: list[str]) -> Manifest:
    template, spec = section(role, "template"), section(role, "template", "spec")
    containers = [
        _container(each, command) if text(each, "name") == TRAINER else each
        for each in entries(spec, "containers")
    ]
    whole = {
        **template,
        "spec": {**spec, "containers": containers, "terminationGracePeriodSeconds": _GRACE_SECONDS},
    }
    return {**role, "restartPolicy": "Never", "template": whole}


def _container(container: Manifest, command: list[str]) -> Manifest:
    kept = {key: value for key, value in container.items() if key not in _OF_TASK}
    return {**kept, "command": [*command]}
