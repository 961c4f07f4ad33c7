"""The objects that are made beside a job, after it: it carries them, so that any server can make them anew.

Lives here: an annotation of the job, written and read. Does not: what they say; see `schedulers`.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from backend_plugin.core.manifest import names
from backend_plugin.core.observed import Job
from backend_plugin.core.reading import section
from backend_plugin.core.values import Manifest

ANNOTATION: Final = "kfpytorch.flyte.org/companions"
NO_UID: Final = "00000000-0000-0000-0000-000000000000"
"""In place of the uid of a job that has none yet."""


class _Companion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object but for its metadata, which are the job's: who may edit a job makes nothing else by it."""

    api_version: str
    kind: str
    spec: dict[str, msgspec.Raw]


def carried(job: Manifest, companions: Sequence[Manifest]) -> Manifest:
    """The job with its companions written on it."""
    if not companions:
        return job
    metadata = section(job, "metadata")
    said = msgspec.json.encode(companions, order="sorted").decode()
    annotations = {**section(metadata, "annotations"), ANNOTATION: said}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


def of(job: Job) -> Sequence[Manifest]:
    """The companions of a job, its own: with it they go; none where nothing can be read."""
    try:
        said = _DECODER.decode(job.annotations.get(ANNOTATION, "[]"))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return ()
    metadata: Manifest = {
        "name": job.name,
        "namespace": job.namespace,
        "labels": names.identity_labels(job.annotations.get(names.OUTPUT_PREFIX, "")),
        "ownerReferences": [_owner(job)],
    }
    return [
        {
            "apiVersion": each.api_version,
            "kind": each.kind,
            "metadata": metadata,
            "spec": {key: msgspec.json.decode(value) for key, value in each.spec.items()},
        }
        for each in said
        if each.kind == "PodGroup"
    ]


def _owner(job: Job) -> Manifest:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": job.name,
        "uid": job.uid or NO_UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }


_DECODER: Final = msgspec.json.Decoder(tuple[_Companion, ...])
