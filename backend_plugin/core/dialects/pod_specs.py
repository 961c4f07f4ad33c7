"""Rules for manifests that several dialects (kinds of job) share: size limits and unique pull secrets."""

from collections.abc import Iterator, Mapping

import msgspec

from backend_plugin.core.errors import InvalidTask, Problem
from backend_plugin.core.reading import get_text_map
from backend_plugin.core.values import Manifest

# The default request limit of etcd; the API server itself accepts 3 MiB.
_LARGEST = 3 * 2**19
# The API server's limit for the keys and values of all annotations of an object.
_LARGEST_ANNOTATIONS = 256 * 1024


def encode_storable(manifest: Manifest) -> bytes:
    """Return the JSON of the manifest.

    Raises:
        InvalidTask: If the manifest or its annotations are larger than the cluster accepts.
    """
    encoded = msgspec.json.encode(manifest)
    annotations = get_text_map(manifest, "metadata", "annotations")
    if problems := [*check_annotation_size(annotations, "metadata.annotations")]:
        raise InvalidTask(*problems)
    if len(encoded) > _LARGEST:
        raise InvalidTask(
            Problem(
                field="template",
                value=f"{len(encoded):,} bytes",
                message=f"makes the {manifest['kind']} larger than {_LARGEST:,} bytes, a cluster's limit",
                remedy="pass large data as files or inputs, not in args, variables or annotations",
            )
        )
    return encoded


def check_annotation_size(annotations: Mapping[str, str], path: str) -> Iterator[Problem]:
    """Yield a problem if the annotations of an object are larger than the API server accepts."""
    size = sum(len(text.encode(errors="replace")) for pair in annotations.items() for text in pair)
    if size > _LARGEST_ANNOTATIONS:
        yield Problem(
            field=path,
            value=f"{size:,} bytes",
            message=f"are larger than {_LARGEST_ANNOTATIONS:,} bytes, a cluster's limit for one object",
            remedy="leave some out; they may be of the execution, the PodTemplate or the settings",
        )


def without_duplicate_secrets(spec: Manifest) -> Manifest:
    """Return a pod's spec without duplicate pull secrets, which the CRDs of jobs reject."""
    secrets = spec.get("imagePullSecrets")
    if not isinstance(secrets, list):
        return spec
    return {**spec, "imagePullSecrets": list({str(each): each for each in secrets}.values())}
