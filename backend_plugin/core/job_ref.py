"""Serialization of the job reference that Flyte stores; all releases of this server can read it."""

from typing import Final

from google.protobuf.message import DecodeError

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.errors import BackendError
from backend_plugin.core.job import JobRef
from backend_plugin.core.signing import SIGNATURE_BYTES, SigningKeys
from kfpytorch_idl.v1 import job_ref_pb2

VERSION: Final = 1

_PURPOSE: Final = b"reference"
# The key of the field `signature` and the length of its value. The field is appended by hand, so that it is
# the last one even if newer servers have fields with higher numbers. Older servers skip it.
_SIGNATURE: Final = bytes([9 << 3 | 2, SIGNATURE_BYTES])

_NAMES: Final = {each.number: name for name, each in DIALECTS.items()}


class UnreadableReference(BackendError):
    """The bytes are not a valid job reference."""


def encode(ref: JobRef, keys: SigningKeys | None = None) -> bytes:
    """Serialize a reference and sign it if there are keys; equal references give equal bytes."""
    message = job_ref_pb2.JobRef(
        version=VERSION,
        dialect=DIALECTS[ref.dialect].number,  # type: ignore[arg-type] # the stubs require a member
        namespace=ref.namespace,
        name=ref.name,
        uid=ref.uid,
        output_prefix=ref.output_prefix,
        refusal=ref.refusal,
    )
    payload = message.SerializeToString(deterministic=True)
    return payload if keys is None else payload + _SIGNATURE + keys.sign(_PURPOSE, payload)


def is_authentic(data: bytes, keys: SigningKeys) -> bool:
    """True if a server with one of these keys signed the reference.

    Also True for an unsigned reference if `keys.accepts_unsigned` is true.
    """
    signed, written = data[: -SIGNATURE_BYTES - len(_SIGNATURE)], data[-SIGNATURE_BYTES - len(_SIGNATURE) :]
    if written.startswith(_SIGNATURE):
        return keys.verify(written.removeprefix(_SIGNATURE), _PURPOSE, signed)
    try:
        return keys.accepts_unsigned and not job_ref_pb2.JobRef.FromString(data).HasField("signature")
    except DecodeError:
        return False


def decode(data: bytes) -> JobRef:
    """Parse a reference of any version.

    Raises `UnreadableReference` if the bytes are not a reference, or if the dialect in it is unknown.
    """
    try:
        message = job_ref_pb2.JobRef.FromString(data)
    except DecodeError as error:
        raise UnreadableReference(f"{len(data)} bytes that are not a job reference") from error
    if message.dialect not in _NAMES:
        raise UnreadableReference(f"dialect {message.dialect} of job {message.name!r} is not supported")
    return JobRef(
        dialect=_NAMES[message.dialect],
        namespace=message.namespace,
        name=message.name,
        output_prefix=message.output_prefix,
        uid=message.uid if message.HasField("uid") else None,
        refusal=message.refusal if message.HasField("refusal") else None,
    )
