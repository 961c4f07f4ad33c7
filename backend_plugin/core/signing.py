"""Signatures of job references and of jobs. `shell.credentials` loads the keys."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backend_plugin.core import names, task_annotation
from backend_plugin.core.reading import get_mapping, get_text, get_text_map
from backend_plugin.core.values import Manifest

SIGNATURE_BYTES: Final = 32
ANNOTATION: Final = "kfpytorch.flyte.org/signature"
"""The annotation with the signature of the job's namespace and name, output prefix and task annotation."""
_HASH: Final = "sha256"
_JOB: Final = b"job"


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKeys:
    """The keys that all servers of one cluster share."""

    keys: tuple[bytes, ...]
    """The keys: the first key makes signatures, and every key can verify them."""
    accepts_unsigned: bool = False
    """True if unsigned references and jobs are accepted, which servers without keys create."""

    def sign(self, purpose: bytes, *parts: bytes) -> bytes:
        """Return the signature of byte strings; a signature is only valid for the same `purpose`."""
        return hmac.digest(self.keys[0], _encode_parts(purpose, *parts), _HASH)

    def verify(self, signature: bytes, purpose: bytes, *parts: bytes) -> bool:
        """True if one of the keys made the signature."""
        message = _encode_parts(purpose, *parts)
        return any(hmac.compare_digest(hmac.digest(key, message, _HASH), signature) for key in self.keys)


def sign_job(manifest: Manifest, keys: SigningKeys) -> Manifest:
    """Return the job with its signature in the annotation `ANNOTATION`."""
    metadata = get_mapping(manifest, "metadata")
    annotations = get_text_map(metadata, "annotations")
    parts = _list_signed_parts(get_text(metadata, "namespace"), get_text(metadata, "name"), annotations)
    signed = {**annotations, ANNOTATION: keys.sign(_JOB, *parts).hex()}
    return {**manifest, "metadata": {**metadata, "annotations": signed}}


def is_job_authentic(namespace: str, name: str, annotations: Mapping[str, str], keys: SigningKeys) -> bool:
    """True if a server with one of these keys wrote the annotations of the job.

    Also True for an unsigned job if `keys.accepts_unsigned` is true. Without this check, a user who may edit
    a job could set the output prefix of another project.
    """
    signature = annotations.get(ANNOTATION)
    if signature is None:
        return keys.accepts_unsigned
    try:
        written = bytes.fromhex(signature)
    except ValueError:
        return False
    return keys.verify(written, _JOB, *_list_signed_parts(namespace, name, annotations))


def _list_signed_parts(namespace: str, name: str, annotations: Mapping[str, str]) -> tuple[bytes, ...]:
    proven = (annotations.get(key, "") for key in (names.OUTPUT_PREFIX, task_annotation.ANNOTATION))
    return tuple(each.encode(errors="replace") for each in (namespace, name, *proven))


def _encode_parts(*parts: bytes) -> bytes:
    """Return the parts in one byte string, each after its length, so that the result is unambiguous."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
