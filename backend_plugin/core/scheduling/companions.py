"""Companion objects of a job: the pod group that this server creates for a gang scheduler.

An annotation of the job stores the objects without their metadata, so that any server can create them again.
"""

from typing import Any, Final

import msgspec

from backend_plugin.core import names
from backend_plugin.core.dialects import table
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.observed import Job
from backend_plugin.core.plan import NO_UID
from backend_plugin.core.scheduling.adapter import Companion
from backend_plugin.core.scheduling.gang import GangSpec
from backend_plugin.core.scheduling.registry import ADAPTERS
from backend_plugin.core.values import Manifest

ANNOTATION: Final = "kfpytorch.flyte.org/companions"


class _CompanionJson(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A companion object, such as a job's PodGroup, without its metadata, which is derived from the job."""

    api_version: str
    kind: str
    spec: dict[str, Any]


def encode(companion: Companion, gang: GangSpec) -> str:
    """Return the value of the job annotation that stores the companion object of a gang."""
    stored = {"apiVersion": companion.api_version, "kind": companion.kind, "spec": companion.spec(gang)}
    return msgspec.json.encode([stored], order="sorted").decode()


def read_companions(job: Job) -> tuple[Manifest, ...]:
    """Return the companion objects in the annotation of a job, such as a PodGroup, owned by the job.

    The result is empty if the annotation is absent or invalid. The annotation is untrusted, because a user
    who may edit the job can change it. So the result has at most one object, of a kind that this server
    creates for a gang scheduler, with the name and namespace of the job. If the job has no uid, the owner
    reference has `NO_UID`.
    """
    try:
        objects = _DECODER.decode(job.annotations.get(ANNOTATION, "[]"))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()
    known = [each.companion for adapters in ADAPTERS.values() for each in adapters.values()]
    types = [(each.api_version, each.kind) for each in known if each is not None]
    if len(objects) != 1 or (objects[0].api_version, objects[0].kind) not in types:
        return ()
    resource = table.get_dialect(job.dialect).resource
    owner = OwnerReference(
        api_version=resource.api_version, kind=resource.kind, name=job.name, uid=job.uid or NO_UID
    )
    metadata: Manifest = {
        "name": job.name,
        "namespace": job.namespace,
        "labels": names.build_identity_labels(job.annotations.get(names.OUTPUT_PREFIX, "")),
        "ownerReferences": names.build_owner_references(owner),
    }
    return ({**msgspec.to_builtins(objects[0]), "metadata": metadata},)


_DECODER: Final = msgspec.json.Decoder(tuple[_CompanionJson, ...])
