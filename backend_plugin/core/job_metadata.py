"""Reads the metadata of jobs, and declares which metadata fields of Kubernetes objects are decoded."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypedDict

from backend_plugin.core.reading import (
    get_int,
    get_interned,
    get_mapping,
    get_mappings,
    get_text_map,
    get_time,
)
from backend_plugin.core.values import Manifest

# A limit on the work per job, because some results have an entry for each replica.
_MOST_REPLICAS: Final = 100_000


# The values of scalar fields may have any type, because the readers check them.
class ReferenceFields(TypedDict, total=False):
    """A reference to another object: an owner, or the object of an event."""

    kind: Any
    name: Any
    uid: Any


class MetadataFields(TypedDict, total=False):
    """The metadata of an object of any kind."""

    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    ownerReferences: list[ReferenceFields] | None


class JobMetadataFields(MetadataFields, total=False):
    """The fields of the metadata that `read_job_metadata` uses."""

    generation: Any
    annotations: dict[str, Any] | None


class JobMetadata(TypedDict):
    """The fields of a `Job` that are read from the metadata of its manifest."""

    name: str
    namespace: str
    uid: str
    created: datetime | None
    generation: int | None
    deleting: bool
    owned: bool
    annotations: Mapping[str, str]


def read_job_metadata(manifest: Manifest) -> JobMetadata:
    """Read the metadata of a job as the API server returns it."""
    metadata = get_mapping(manifest, "metadata")
    return JobMetadata(
        name=get_interned(metadata, "name"),
        namespace=get_interned(metadata, "namespace"),
        uid=get_interned(metadata, "uid"),
        created=get_time(metadata, "creationTimestamp"),
        generation=get_int(metadata, "generation"),
        deleting=bool(metadata.get("deletionTimestamp")),
        owned=bool(get_mappings(metadata, "ownerReferences")),
        annotations=get_text_map(metadata, "annotations"),
    )


def read_replica_count(spec: Manifest, key: str) -> int:
    """Read a number of replicas; 1 if absent. A number outside of 0 to 100,000 becomes the nearest limit."""
    count = get_int(spec, key)
    return 1 if count is None else max(0, min(count, _MOST_REPLICAS))
