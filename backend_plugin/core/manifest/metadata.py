"""The metadata of a job, from its pods, its task template and its execution."""

from collections.abc import Mapping

from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.core import origin
from backend_plugin.core.job import Deadlines, Run
from backend_plugin.core.manifest import names
from backend_plugin.core.values import JsonValue, Manifest


def job_metadata(template: TaskTemplate, run: Run, deadlines: Deadlines, pod: Manifest) -> Manifest:
    """Return the name, labels, annotations and owner of the job around `pod`.

    A job has the labels and annotations of its pods, so that queues and cost reports see them. Those of the
    task template override them, and those of the execution override both.
    """
    said = template.metadata.metadata
    metadata = _mapping(pod, "metadata")
    owners = names.owner_references(run.owner)
    return {
        "name": names.job_name(run),
        "namespace": run.namespace,
        "labels": {
            **_mapping(metadata, "labels"),
            **said.labels,
            **run.labels,
            **names.identity_labels(run.output_prefix),
        },
        "annotations": {
            **_theirs(_mapping(metadata, "annotations")),
            **_theirs(said.annotations),
            **_theirs(run.annotations),
            names.OUTPUT_PREFIX: run.output_prefix,
            origin.ANNOTATION: origin.encode(run, deadlines, template.config),
        },
        **({"ownerReferences": owners} if owners else {}),
    }


def _theirs(annotations: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the annotations without our prefix, because those control the job and the server."""
    return {key: value for key, value in annotations.items() if not key.startswith(names.PREFIX)}


def with_identity(pod: Manifest, run: Run) -> Manifest:
    """Return the pod template with the identity label of the job."""
    metadata = _mapping(pod, "metadata")
    labels = {**_mapping(metadata, "labels"), names.IDENTITY: names.identity(run)}
    return {**pod, "metadata": {**metadata, "labels": labels}}


def _mapping(manifest: Manifest, key: str) -> Mapping[str, JsonValue]:
    part = manifest.get(key)
    return part if isinstance(part, dict) else {}
