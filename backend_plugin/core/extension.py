"""Reader for the key `kfpytorch` of a task's custom, which extends flyteidl."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from google.protobuf.message import Message

from backend_plugin.core import data_sources, protojson
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import (
    GangOptions,
    Placement,
    PodFailureRule,
    ReplicaRole,
    Topology,
    TrainJobOptions,
)
from backend_plugin.core.package_installation import check_packages
from backend_plugin.core.values import JsonValue, Manifest
from kfpytorch_common import labels
from kfpytorch_common.frameworks import FRAMEWORKS, TORCH
from kfpytorch_idl.v1 import task_pb2

KEY: Final = "kfpytorch"
VERSION: Final = 1
_PATH: Final = f"custom.{KEY}"

_OPERATORS: Final = ("Equal", "Exists")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RUNTIME_KINDS: Final = ("ClusterTrainingRuntime", "TrainingRuntime")
_OF_DATA: Final = ("dataset", "model", "storage")
_TOPOLOGY_MODES: Final = ("exclusive", "required", "preferred")
_POSITIVE: Final = ("min_member", "queue_timeout_seconds", "pending_timeout_seconds")


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """The value of the key ``kfpytorch`` in a task's `custom`; every field is optional."""

    placements: Mapping[ReplicaRole, Placement] = msgspec.field(default_factory=dict)
    retries: Mapping[ReplicaRole, int] = msgspec.field(default_factory=dict)
    """The number of restarts of each replica of a role, if the author set one."""
    gang: GangOptions | None = None
    train_job: TrainJobOptions | None = None


def decode(value: JsonValue, problems: list[Problem]) -> Extension:
    """Read the value of the key ``kfpytorch``, and add a problem to `problems` for each invalid value."""
    if value is None:
        return Extension()
    if not isinstance(value, Mapping):
        problems.append(
            _problem("", value, "is not an object", "leave it out, or let the kfpytorch plugin write it")
        )
        return Extension()
    message = task_pb2.TaskExtension()
    protojson.parse_message(value, message, _PATH, problems)
    if message.HasField("version") and not 1 <= message.version <= VERSION:
        remedy = f"use a backend that supports it; this one supports {VERSION}"
        problems.append(_problem(".version", message.version, "is a layout of another release", remedy))
    problems += _check_extension(message)
    return Extension(
        placements={
            role: _decode_placement(part)
            for role, name, part in (
                (ReplicaRole.MASTER, "master", message.master),
                (ReplicaRole.WORKER, "worker", message.worker),
            )
            if message.HasField(name)
        },
        retries={
            role: part.num_retries
            for role, part in ((ReplicaRole.MASTER, message.master), (ReplicaRole.WORKER, message.worker))
            if part.HasField("num_retries")
        },
        gang=GangOptions(**_read_set_fields(message.gang)) if message.HasField("gang") else None,
        train_job=_decode_train_job(message.train_job) if message.HasField("train_job") else None,
    )


def _decode_train_job(message: task_pb2.TrainJob) -> TrainJobOptions:
    return TrainJobOptions(
        runtime=message.runtime if message.HasField("runtime") else None,
        runtime_kind=message.runtime_kind if message.HasField("runtime_kind") else None,
        max_restarts=message.max_restarts if message.HasField("max_restarts") else None,
        packages=tuple(message.packages),
        succeeded_indexes=(
            message.success_policy.succeeded_indexes if message.HasField("success_policy") else None
        ),
        topology=Topology(**_read_set_fields(message.topology)) if message.topology.level else None,
        pod_failure_rules=tuple(
            PodFailureRule(
                action=rule.action,
                exit_codes=tuple(sorted({*rule.exit_codes})),
                operator=rule.operator or "In",
                pod_conditions=dict(rule.pod_conditions),
            )
            for rule in message.pod_failure_policy
        ),
        sources=data_sources.decode_sources(message),
        storage=data_sources.decode_storage(message),
        framework=message.framework or TORCH,
    )


def _decode_placement(role: task_pb2.Role) -> Placement:
    return Placement(
        node_selector=dict(role.node_selector),
        tolerations=tuple(_decode_toleration(toleration) for toleration in role.tolerations),
        pod_template=protojson.decode_struct(role.pod_template) if role.HasField("pod_template") else None,
        priority_class_name=role.priority_class_name if role.HasField("priority_class_name") else None,
    )


def _decode_toleration(toleration: task_pb2.Toleration) -> Manifest:
    set_fields = _read_set_fields(toleration)
    seconds = set_fields.pop("toleration_seconds", None)
    return set_fields if seconds is None else {**set_fields, "tolerationSeconds": seconds}


def _read_set_fields(message: Message) -> dict[str, Any]:
    return {item.name: value for item, value in message.ListFields()}


def _check_extension(message: task_pb2.TaskExtension) -> Iterator[Problem]:
    for name, role in (("master", message.master), ("worker", message.worker)):
        for index, toleration in enumerate(role.tolerations):
            yield from _check_toleration(toleration, f".{name}.tolerations[{index}]")
        yield from _check_labels(role.node_selector, f".{name}.nodeSelector")
    for name, part in (("master", message.master), ("worker", message.worker), ("gang", message.gang)):
        if part.HasField("priority_class_name") and not labels.is_subdomain(part.priority_class_name):
            remedy = f"write {labels.SUBDOMAIN}"
            given = part.priority_class_name
            yield _problem(f".{name}.priorityClassName", given, "is not the name of a PriorityClass", remedy)
    for name in _POSITIVE:
        if message.gang.HasField(name) and getattr(message.gang, name) < 1:
            remedy = "write at least 1, or leave it out"
            key = task_pb2.Gang.DESCRIPTOR.fields_by_name[name].json_name
            yield _problem(f".gang.{key}", getattr(message.gang, name), "is less than 1", remedy)
    yield from _check_train_job(message.train_job)
    yield from data_sources.check(message.train_job, f"{_PATH}.trainJob")


def _check_train_job(options: task_pb2.TrainJob) -> Iterator[Problem]:
    yield from _check_topology(options)
    yield from check_packages(options.packages, f"{_PATH}.trainJob.packages")
    if options.max_restarts < 0:
        yield _problem(".trainJob.maxRestarts", options.max_restarts, "is negative", "write 0 or more")
    if options.HasField("runtime") and not labels.is_subdomain(options.runtime):
        remedy = f"write {labels.SUBDOMAIN}"
        yield _problem(".trainJob.runtime", options.runtime, "is not the name of a runtime", remedy)
    kind = options.runtime_kind
    if kind and kind not in _RUNTIME_KINDS:
        yield _choice_problem(".trainJob.runtimeKind", kind, _RUNTIME_KINDS)
    elif kind and not options.runtime:
        yield _problem(".trainJob.runtimeKind", kind, "has no runtime of this kind", "name the runtime, too")
    if options.HasField("framework") and options.framework not in FRAMEWORKS:
        yield _choice_problem(".trainJob.framework", options.framework, FRAMEWORKS)


def _check_topology(options: task_pb2.TrainJob) -> Iterator[Problem]:
    topology = options.topology
    if options.HasField("topology") and not labels.is_key(topology.level):
        yield _problem(
            ".trainJob.topology.level", topology.level, "is not a label name", f"write {labels.KEY}"
        )
    if topology.HasField("mode") and topology.mode not in _TOPOLOGY_MODES:
        yield _choice_problem(".trainJob.topology.mode", topology.mode, _TOPOLOGY_MODES)


def _check_labels(selector: Mapping[str, str], path: str) -> Iterator[Problem]:
    for key, value in sorted(selector.items()):
        if not labels.is_key(key):
            yield _problem(path, key, "is not a label name", f"write {labels.KEY}")
        if not labels.is_value(value):
            yield _problem(f"{path}.{key}", value, "is not a label value", f"write {labels.VALUE}")


def _check_toleration(toleration: task_pb2.Toleration, path: str) -> Iterator[Problem]:
    if toleration.operator and toleration.operator not in _OPERATORS:
        yield _choice_problem(f"{path}.operator", toleration.operator, _OPERATORS)
    if toleration.effect and toleration.effect not in _EFFECTS:
        yield _choice_problem(f"{path}.effect", toleration.effect, _EFFECTS)
    if toleration.operator == "Exists" and toleration.value:
        remedy = "leave value out, or write operator Equal"
        yield _problem(f"{path}.value", toleration.value, "is not used with operator Exists", remedy)
    if not toleration.key and toleration.operator != "Exists":
        remedy = "write a key, or operator Exists for every taint"
        yield _problem(f"{path}.key", toleration.key, "names no taint", remedy)


def _choice_problem(path: str, value: str, allowed: tuple[str, ...]) -> Problem:
    return _problem(path, value, "is not one of its values", f"write one of {', '.join(allowed)}")


def _problem(path: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=_PATH + path, value=protojson.format_value(value), message=message, remedy=remedy)
