"""Rules for manifests that several dialects (kinds of job) share: size limits and unique pull secrets."""

import msgspec

from backend_plugin.core.errors import InvalidTask, check_size
from backend_plugin.core.values import Manifest

# The default request limit of etcd; the API server itself accepts 3 MiB.
_LARGEST = 3 * 2**19


def encode_storable(manifest: Manifest) -> bytes:
    """Return the JSON of the manifest; raise `InvalidTask` if it is larger than the cluster accepts."""
    encoded = msgspec.json.encode(manifest)
    if problems := check_size(f"the {manifest['kind']}", len(encoded), _LARGEST):
        raise InvalidTask(*problems)
    return encoded


def without_duplicate_secrets(spec: Manifest) -> Manifest:
    """Return a pod's spec without duplicate pull secrets, which the CRDs of jobs reject."""
    secrets = spec.get("imagePullSecrets")
    if not isinstance(secrets, list):
        return spec
    return {**spec, "imagePullSecrets": list({str(each): each for each in secrets}.values())}
