"""Builds the metadata of a job from its pods, its task template and its execution."""

from collections.abc import Mapping

from flyteidl.core.tasks_pb2 import TaskTemplate

from backend_plugin.core import names, task_annotation
from backend_plugin.core.job import Attempt, Deadlines
from backend_plugin.core.reading import get_mapping
from backend_plugin.core.values import JsonValue, Manifest


def build_job_metadata(
    template: TaskTemplate, run: Attempt, deadlines: Deadlines, pod: Manifest, *, longest_name: int
) -> Manifest:
    """Return the metadata of a job, with a name of at most `longest_name` characters.

    The labels and annotations come from the pod, the task template and the execution. A later source in this
    list overrides an earlier one.
    """
    template_metadata = template.metadata.metadata
    metadata = get_mapping(pod, "metadata")
    owners = names.build_owner_references(run.owner)
    return {
        "name": names.job_name(run, longest_name),
        "namespace": run.namespace,
        "labels": {
            **get_mapping(metadata, "labels"),
            **template_metadata.labels,
            **run.labels,
            **names.build_identity_labels(run.output_prefix),
        },
        "annotations": {
            **_without_own_keys(get_mapping(metadata, "annotations")),
            **_without_own_keys(template_metadata.annotations),
            **_without_own_keys(run.annotations),
            names.OUTPUT_PREFIX: run.output_prefix,
            task_annotation.ANNOTATION: task_annotation.encode(run, deadlines, template.config),
        },
        **({"ownerReferences": owners} if owners else {}),
    }


def _without_own_keys(annotations: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the annotations whose keys lack this project's prefix, which only the server may use."""
    return {key: value for key, value in annotations.items() if not key.startswith(names.PREFIX)}


def with_identity(pod: Manifest, run: Attempt) -> Manifest:
    """Return the pod template with the identity label of the job (`names.IDENTITY`)."""
    metadata = get_mapping(pod, "metadata")
    labels = {**get_mapping(metadata, "labels"), names.IDENTITY: names.compute_identity(run.output_prefix)}
    return {**pod, "metadata": {**metadata, "labels": labels}}
