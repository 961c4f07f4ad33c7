"""Builds the API requests that change objects."""

from typing import Final

import msgspec

from backend_plugin.core.reading import get_mapping
from backend_plugin.core.values import Manifest
from backend_plugin.kube.api_resources import ApiResource
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.shell.cluster import ObjectName

WRITTEN: Final = {"fieldManager": "kfpytorch", "fieldValidation": "Strict"}
"""The query of write requests: the API server then rejects an object with a field outside its schema."""


def encode_manifest(manifest: Manifest) -> bytes:
    """Return an object as JSON."""
    return msgspec.json.encode(manifest, enc_hook=dict)


def build_patch(resource: ApiResource, name: ObjectName, patch: Manifest, *, awaited: bool) -> ApiRequest:
    """Return the request that applies a merge patch to an object.

    If `name` has a uid, an object with another uid is not changed. Without `awaited`, the request has low
    priority.
    """
    metadata = get_mapping(patch, "metadata")
    if name.uid is not None:
        patch = {**patch, "metadata": {**metadata, "uid": name.uid}}
    return ApiRequest(
        method="PATCH",
        path=resource.build_path(name.namespace, name.name),
        query=WRITTEN,
        body=encode_manifest(patch),
        content_type="application/merge-patch+json",
        doubts=False,
        conflicts="resourceVersion" in metadata,
        is_background=not awaited,
    )
