"""Merges the master and the workers of a task into the nodes of a TrainJob, which must all be equal."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

from msgspec import structs

from backend_plugin.core.dialects.trainjob.resource import find_trainer
from backend_plugin.core.errors import InvalidTask, Problem
from backend_plugin.core.job import ReplicaGroup, ReplicaRole, TrainingJob
from backend_plugin.core.protojson import format_value
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import JsonValue, Manifest

_MAPS: Final = ("labels", "annotations")


def fold(job: TrainingJob, pods: Sequence[Manifest]) -> tuple[TrainingJob, Sequence[Manifest]]:
    """Return the job with master and workers in one group of nodes, and a list with the nodes' pod template.

    Raises `InvalidTask`, with each field that differs, if the pod templates of master and workers differ.
    """
    first, *others = job.groups
    problems = [
        problem
        for group, pod in zip(others, pods[1:], strict=True)
        if pod != pods[0]
        for problem in _compare(pods[0], pod, first.role, group.role)
    ]
    if problems:
        raise InvalidTask(*problems)
    return structs.replace(job, groups=(_merge_groups(job.groups),)), pods[:1]


def _merge_groups(groups: Sequence[ReplicaGroup]) -> ReplicaGroup:
    policies = {group.restart_policy for group in groups}
    retries = [group.num_retries for group in groups if group.num_retries is not None]
    return structs.replace(
        groups[0],
        role=ReplicaRole.NODE,
        replicas=sum(group.replicas for group in groups),
        restart_policy="Never" if policies == {"Never"} else "OnFailure",
        num_retries=max(retries, default=None),
    )


def _compare(one: Manifest, other: Manifest, role: ReplicaRole, other_role: ReplicaRole) -> Iterator[Problem]:
    values, others = _list_fields(one), _list_fields(other)
    for field in dict.fromkeys([*values, *others]):
        value, there = values.get(field), others.get(field)
        if value != there:
            yield Problem(
                field=f"{role.value.lower()} and {other_role.value.lower()}: {field}",
                value=f"{format_value(value)} and {format_value(there)}",
                message="differ, and all nodes of a TrainJob are equal",
                remedy="use PyTorchJob, or make them equal",
            )


def _list_fields(pod: Manifest) -> Mapping[str, JsonValue]:
    """Return the fields of a pod template by names such as ``metadata.labels.team``.

    A field of the pod spec or of the training container is named without a prefix, such as ``image``. The
    prefix for another container is its name, as in ``sidecar.image``.
    """
    spec, metadata = get_mapping(pod, "spec"), get_mapping(pod, "metadata")
    trainer = find_trainer(spec)
    fields = {**_list_container_fields(trainer), **_add_prefix(spec, "", ("containers",))}
    for each in get_mappings(spec, "containers"):
        if each is not trainer:
            fields |= _add_prefix(_list_container_fields(each), f"{get_text(each, 'name')}.")
    fields |= _add_prefix(metadata, "metadata.", _MAPS)
    for part in _MAPS:
        fields |= _add_prefix(get_mapping(metadata, part), f"metadata.{part}.")
    return fields


def _add_prefix(fields: Manifest, prefix: str, excluded: Container[str] = ()) -> dict[str, JsonValue]:
    return {f"{prefix}{key}": value for key, value in fields.items() if key not in excluded}


def _list_container_fields(container: Manifest) -> Mapping[str, JsonValue]:
    """Return the fields of a container by name; each environment variable is a field ``env.<name>``."""
    env = {
        f"env.{get_text(each, 'name')}": each.get("value", each.get("valueFrom"))
        for each in get_mappings(container, "env")
    }
    return {**_add_prefix(container, "", ("name", "env")), **env}
