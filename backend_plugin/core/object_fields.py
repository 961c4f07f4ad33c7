"""The fields that objects of all kinds have, for decoders that skip all other fields."""

from typing import Any, TypedDict


# The values of scalar fields may have any type, because the readers check them.
class ReferenceFields(TypedDict, total=False):
    """A reference to another object: an owner, or the object of an event."""

    kind: Any
    name: Any
    uid: Any


class MetadataFields(TypedDict, total=False):
    """The metadata of an object."""

    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    ownerReferences: list[ReferenceFields] | None
