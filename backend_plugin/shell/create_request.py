"""The parts of a CreateTask request that the server reads, each with a size limit.

Protobuf holds the GIL while it parses: 12 MB of map entries take a second. Sizes are therefore checked on the
wire format first, and unused fields such as inputs are not parsed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flyteidl.admin import agent_pb2 as admin
from flyteidl.admin.agent_pb2 import TaskExecutionMetadata
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.message import DecodeError

from backend_plugin.core.errors import CUSTOM_BYTES, Problem, check_size
from backend_plugin.core.job import Attempt

MAX_FIELDS: Final = 4_000
"""Maximum number of fields in one message; a task has a few dozen."""

_KIB: Final = 2**10
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED_64: 8, _FIXED_32: 4}
_VARINT_BYTES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """The fields of a CreateTask request that the server uses."""

    template: TaskTemplate
    run: Attempt
    problems: Sequence[Problem]
    """A problem for each field that exceeds its size limit; these fields are left out."""


@dataclass(frozen=True, slots=True)
class _FieldSpec:
    """A field that is read: its path in messages to users, and either its size limit or its inner fields."""

    path: str
    limit: int = 0
    fields: "Mapping[int, _FieldSpec]" = field(default_factory=dict)


# Parsing 1 MB takes 80 ms for maps of strings, 40 ms for a Struct and 15 ms for a list of strings.
_POD: Final = {
    1: _FieldSpec("k8sPod.metadata", 256 * _KIB),
    2: _FieldSpec("k8sPod.podSpec", 1024 * _KIB),
    3: _FieldSpec("k8sPod.dataConfig", 16 * _KIB),
    4: _FieldSpec("k8sPod.primaryContainerName", 16 * _KIB),
}
_TEMPLATE: Final = {
    1: _FieldSpec("id", 16 * _KIB),
    2: _FieldSpec("type", 16 * _KIB),
    3: _FieldSpec("metadata", 64 * _KIB),
    5: _FieldSpec("custom", CUSTOM_BYTES),
    6: _FieldSpec("container", 1024 * _KIB),
    7: _FieldSpec("taskTypeVersion", 16 * _KIB),
    8: _FieldSpec("securityContext", 64 * _KIB),
    9: _FieldSpec("extendedResources", 16 * _KIB),
    16: _FieldSpec("config", 256 * _KIB),
    17: _FieldSpec("k8sPod", fields=_POD),
}
_REQUEST: Final = {
    2: _FieldSpec("template", fields=_TEMPLATE),
    3: _FieldSpec("output_prefix", 16 * _KIB),
    4: _FieldSpec("task_execution_metadata", 512 * _KIB),
}


def parse_request(data: bytes) -> CreateRequest:
    """Parse a serialized CreateTaskRequest.

    Raises:
        DecodeError: If the request is malformed.
    """
    problems: list[Problem] = []
    request = admin.CreateTaskRequest.FromString(
        _trim_message(memoryview(data), _FieldSpec("", fields=_REQUEST), problems)
    )
    return CreateRequest(
        template=request.template,
        run=read_attempt(request.task_execution_metadata, request.output_prefix),
        problems=problems,
    )


def read_attempt(metadata: TaskExecutionMetadata, output_prefix: str) -> Attempt:
    """Return the attempt of a request. Maps are sorted by key, so that equal requests give equal jobs."""
    # Read each nested message once, because each access creates a Python object.
    attempt = metadata.task_execution_id
    task, node = attempt.task_id, attempt.node_execution_id
    execution = node.execution_id
    return Attempt(
        output_prefix=output_prefix,
        project=execution.project,
        domain=execution.domain,
        execution=execution.name,
        node_id=node.node_id,
        attempt=attempt.retry_attempt,
        task_project=task.project,
        task_domain=task.domain,
        task_name=task.name,
        task_version=task.version,
        namespace=metadata.namespace,
        labels=dict(sorted(metadata.labels.items())),
        annotations=dict(sorted(metadata.annotations.items())),
        service_account=metadata.k8s_service_account,
        environment=dict(sorted(metadata.environment_variables.items())),
        execution_identity=metadata.identity.execution_identity,
        preemptible=metadata.interruptible,
    )


def _trim_message(data: memoryview, part: _FieldSpec, problems: list[Problem]) -> bytes:
    """Return the message without unused or too large fields; add a `Problem` for each too large field."""
    fields: list[bytes] = []
    sizes: Counter[int] = Counter()
    for index, (number, encoded, content) in enumerate(_iter_fields(data)):
        if index == MAX_FIELDS:
            problems.append(
                Problem(
                    field=part.path or "request",
                    value=f"more than {MAX_FIELDS:,} fields",
                    message=f"has more than the limit of {MAX_FIELDS:,} fields",
                    remedy="remove fields that are not needed",
                )
            )
            break
        if (inner := part.fields.get(number)) is None:
            continue
        if inner.fields:
            trimmed = _trim_message(content, inner, problems)
            fields.append(_encode_varint(number << 3 | _BYTES) + _encode_varint(len(trimmed)) + trimmed)
            continue
        sizes[number] += len(content)
        if sizes[number] <= inner.limit:
            fields.append(bytes(encoded))
    for number, size in sizes.items():
        problems += check_size(part.fields[number].path, size, part.fields[number].limit)
    return b"".join(fields)


def _iter_fields(data: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Yield number, encoded field and value of each field of a protobuf message.

    Raises:
        DecodeError: If the message is malformed.
    """
    at = 0
    while at < len(data):
        start = at
        key, at = _decode_varint(data, at)
        kind, begin = key & 7, at
        if kind == _VARINT:
            _, at = _decode_varint(data, at)
        elif kind == _BYTES:
            size, begin = _decode_varint(data, at)
            at = begin + size
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise DecodeError("a field has a wire type that no field of a request has")
        if at > len(data):
            raise DecodeError("a field is longer than the request")
        yield key >> 3, data[start:at], data[begin:at]


def _decode_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the varint at offset `at`, and the offset after it; raise `DecodeError` if it is malformed."""
    value = 0
    for index, byte in enumerate(data[at : at + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise DecodeError("a number is longer than ten bytes, or than the request")


def _encode_varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
