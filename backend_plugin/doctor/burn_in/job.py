"""The job of a burn-in: that of a task, with another program in it and no longer than it takes.

Lives here: manifest → manifest, and whose name it has. Does not: the program, and running it.
"""

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
"""Of no store: nobody looks there for outputs."""
_KEPT_SECONDS: Final = 600
"""For whoever was killed before it could delete the job."""
_AFTERWARDS: Final = 60
"""Seconds that the job has beyond those that are waited for it."""
_GRACE_SECONDS: Final = 2
"""The first process of a container heeds no SIGTERM by itself, and has nothing to save."""
_AGENT: Final = ("python", "-m", "torch.distributed.run", "--no-python")
_OF_TASK: Final = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "args", "command")
"""What a container says about the program that it would run."""


def run_of(run: Run, token: str) -> Run:
    """The same as another attempt, which has a name of its own for every token."""
    labels = {**run.labels, "execution-id": _EXECUTION}
    return replace(run, execution=_EXECUTION, output_prefix=f"{_PREFIX}{token}", labels=labels)


def of(job: Manifest, program: str, seconds: int) -> Manifest:
    """The job with `program` in place of its command; everything that decides where it runs stays.

    Args:
        job: A PyTorchJob as it was planned for a run of `run_of`.
        program: A text for ``python -c``, which is told how many seconds ranks may wait for each other.
        seconds: How long it is waited for.
    """
    spec, elastic = section(job, "spec"), section(job, "spec", "elasticPolicy")
    program_of = ("python", "-c", program, str(seconds))
    command = [*_AGENT, *program_of] if elastic else [*program_of]
    roles = section(spec, "pytorchReplicaSpecs")
    said = section(spec, "runPolicy")
    policy = {
        # With a limit the operator deletes all pods at the first failure beyond it, whatever the policy says.
        **{key: value for key, value in said.items() if key != "backoffLimit"},
        "cleanPodPolicy": "None",  # What they have written is to be read.
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
    """Without what the task says about time: a server would heed it."""
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
