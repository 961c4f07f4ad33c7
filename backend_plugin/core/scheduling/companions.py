"""Companion objects of a job: the pod group that this server creates for a gang scheduler.

An annotation of the job stores the objects without their metadata, so that any server can create them again.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from backend_plugin.core import names
from backend_plugin.core.dialects import table
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.observed import Job
from backend_plugin.core.plan import NO_UID
from backend_plugin.core.scheduling.registry import ADAPTERS
from backend_plugin.core.values import Manifest

ANNOTATION: Final = "kfpytorch.flyte.org/companions"


class _CompanionJson(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A companion object, such as a job's PodGroup, without its metadata, which is derived from the job."""

    api_version: str
    kind: str
    spec: dict[str, Any]


class CompanionBuilder(msgspec.Struct, frozen=True, kw_only=True):
    """Builds the companion objects of a job, such as its PodGroup, when the uid of the job is known."""

    dialect: str
    namespace: str
    job: str
    """The name of the job."""
    output_prefix: str
    objects: Sequence[Manifest]
    """The objects without their metadata."""

    def __call__(self, uid: str) -> tuple[Manifest, ...]:
        """Return the companion objects, such as a PodGroup; the job with this uid is their owner."""
        resource = table.get_dialect(self.dialect).resource
        owner = OwnerReference(api_version=resource.api_version, kind=resource.kind, name=self.job, uid=uid)
        metadata: Manifest = {
            "name": self.job,
            "namespace": self.namespace,
            "labels": names.build_identity_labels(self.output_prefix),
            "ownerReferences": names.build_owner_references(owner),
        }
        return tuple({**each, "metadata": metadata} for each in self.objects)


def encode(companions: Sequence[Manifest]) -> str:
    """Return the value of the job annotation that stores companion objects, such as the job's PodGroup."""
    return msgspec.json.encode(companions, order="sorted").decode()


def read_companions(job: Job) -> Sequence[Manifest]:
    """Return the companion objects in the annotation of a job, such as a PodGroup, owned by the job.

    None are returned if the annotation is absent or invalid. It is untrusted: a user who may edit the job can
    change it. So the result has at most one object, of a kind that this server creates for a gang scheduler,
    with the name and namespace of the job.
    """
    try:
        objects = _DECODER.decode(job.annotations.get(ANNOTATION, "[]"))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()
    known = [each.companion for adapters in ADAPTERS.values() for each in adapters.values()]
    types = [(each.api_version, each.kind) for each in known if each is not None]
    if len(objects) != 1 or (objects[0].api_version, objects[0].kind) not in types:
        return ()
    build = CompanionBuilder(
        dialect=job.dialect,
        namespace=job.namespace,
        job=job.name,
        output_prefix=job.annotations.get(names.OUTPUT_PREFIX, ""),
        objects=msgspec.to_builtins(objects),
    )
    return build(job.uid or NO_UID)


_DECODER: Final = msgspec.json.Decoder(tuple[_CompanionJson, ...])
