"""The companion objects of a job, stored in an annotation of it so that any server can create them again."""

from collections.abc import Container, Sequence
from typing import Any, Final

import msgspec

from backend_plugin.core.manifest import names
from backend_plugin.core.observed import Job
from backend_plugin.core.reading import get_mapping
from backend_plugin.core.scheduling.registry import ADAPTERS
from backend_plugin.core.values import Manifest

ANNOTATION: Final = "kfpytorch.flyte.org/companions"
NO_UID: Final = "00000000-0000-0000-0000-000000000000"
"""The placeholder for the uid of a job that the cluster has not created."""


class _CompanionJson(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A companion object without its metadata, which is derived from the job."""

    api_version: str
    kind: str
    spec: dict[str, Any]


def annotate_companions(job: Manifest, companions: Sequence[Manifest]) -> Manifest:
    """Return the job with the annotation for its companion objects."""
    if not companions:
        return job
    metadata = get_mapping(job, "metadata")
    said = msgspec.json.encode(companions, order="sorted").decode()
    annotations = {**get_mapping(metadata, "annotations"), ANNOTATION: said}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


def read_companions(job: Job) -> Sequence[Manifest]:
    """Return the companion objects of a job, owned by it; none if the annotation is absent or invalid.

    The annotation is untrusted: a user who may edit the job can change it. So the result has at most one
    object, of a kind that an adapter creates, with the name and namespace of the job.
    """
    written = job.annotations.get(ANNOTATION)
    if written is None:
        return ()
    try:
        said = _DECODER.decode(written)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()
    if len(said) != 1 or any((each.api_version, each.kind) not in _list_companion_types() for each in said):
        return ()
    metadata: Manifest = {
        "name": job.name,
        "namespace": job.namespace,
        "labels": names.build_identity_labels(job.annotations.get(names.OUTPUT_PREFIX, "")),
        "ownerReferences": [_build_owner_reference(job)],
    }
    return [
        {
            "apiVersion": each.api_version,
            "kind": each.kind,
            "metadata": metadata,
            "spec": each.spec,
        }
        for each in said
    ]


def _list_companion_types() -> Container[tuple[str, str]]:
    return {
        each.companion_type for styles in ADAPTERS.values() for each in styles.values() if each.companion_type
    }


def _build_owner_reference(job: Job) -> Manifest:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": job.name,
        "uid": job.uid or NO_UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }


_DECODER: Final = msgspec.json.Decoder(tuple[_CompanionJson, ...])
