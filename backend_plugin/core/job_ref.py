"""What Flyte keeps for us between two calls, as bytes; readable by older and newer servers."""

from typing import Final

from google.protobuf.message import DecodeError

from backend_plugin.core.errors import BackendError
from backend_plugin.core.job import Dialect, JobRef
from kfpytorch_idl.v1 import job_ref_pb2

VERSION: Final = 1

_NUMBERS: Final = {
    Dialect.PYTORCHJOB: job_ref_pb2.DIALECT_PYTORCHJOB,
    Dialect.TRAINJOB: job_ref_pb2.DIALECT_TRAINJOB,
}
_DIALECTS: Final = {number: dialect for dialect, number in _NUMBERS.items()}


class UnreadableReference(BackendError):
    """The bytes name no job of ours."""


def encode(ref: JobRef) -> bytes:
    """Write a reference; equal ones give equal bytes."""
    message = job_ref_pb2.JobRef(
        version=VERSION,
        dialect=_NUMBERS[ref.dialect],
        namespace=ref.namespace,
        name=ref.name,
        uid=ref.uid,
        output_prefix=ref.output_prefix,
        refusal=ref.refusal,
    )
    return message.SerializeToString(deterministic=True)


def decode(data: bytes) -> JobRef:
    """Read a reference of any version.

    Raises:
        UnreadableReference: If it is none, or of a dialect that this server does not speak.
    """
    try:
        message = job_ref_pb2.JobRef.FromString(data)
    except DecodeError as error:
        raise UnreadableReference(f"{len(data)} bytes that are no job reference") from error
    if message.dialect not in _DIALECTS:
        raise UnreadableReference(f"dialect {message.dialect} of job {message.name!r} is not known here")
    return JobRef(
        dialect=_DIALECTS[message.dialect],
        namespace=message.namespace,
        name=message.name,
        output_prefix=message.output_prefix,
        uid=message.uid if message.HasField("uid") else None,
        refusal=message.refusal if message.HasField("refusal") else None,
    )
