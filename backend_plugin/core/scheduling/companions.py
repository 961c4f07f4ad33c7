"""The objects that are made beside a job, after it: it carries them, so that any server can make them anew.

Lives here: an annotation of the job, written and read. Does not: what they say; see `schedulers`.
"""

from collections.abc import Container, Sequence
from typing import Any, Final

import msgspec

from backend_plugin.core.manifest import names
from backend_plugin.core.observed import Job
from backend_plugin.core.reading import section
from backend_plugin.core.scheduling.table import ADAPTERS
from backend_plugin.core.values import Manifest

ANNOTATION: Final = "kfpytorch.flyte.org/companions"
NO_UID: Final = "00000000-0000-0000-0000-000000000000"
"""In place of the uid of a job that has none yet."""


class _Companion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object but for its metadata, which are the job's."""

    api_version: str
    kind: str
    spec: dict[str, Any]


def carried(job: Manifest, companions: Sequence[Manifest]) -> Manifest:
    """The job with its companions written on it."""
    if not companions:
        return job
    metadata = section(job, "metadata")
    said = msgspec.json.encode(companions, order="sorted").decode()
    annotations = {**section(metadata, "annotations"), ANNOTATION: said}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


def of(job: Job) -> Sequence[Manifest]:
    """The companions of a job, its own: with it they go; none where nothing can be read.

    Whoever may edit a job writes here, too. So it is one object at most, of a kind that an adapter makes, by
    the job's own name and in its namespace.
    """
    written = job.annotations.get(ANNOTATION)
    if written is None:
        return ()
    try:
        said = _DECODER.decode(written)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()
    if len(said) != 1 or any((each.api_version, each.kind) not in _made() for each in said):
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
            "spec": each.spec,
        }
        for each in said
    ]


def _made() -> Container[tuple[str, str]]:
    return {each.makes for styles in ADAPTERS.values() for each in styles.values() if each.makes}


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
