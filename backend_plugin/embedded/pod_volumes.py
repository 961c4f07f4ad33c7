"""Maps the volumes of a pod to directories, and rewrites paths below its mounts. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest

# Not mapped: the shared memory of the machine serves the same purpose.
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a mount, not a temporary file.
_FAILED: Final = 'MountVolume.SetUp failed for volume "{volume}" : {why}'


class ContainerConfigError(Exception):
    """A container cannot be created from its manifest: the kubelet reports `CreateContainerConfigError`."""


def find_volume_error(pod: Manifest) -> str:
    """Return an error message if a volume of a pod does not exist or has an unsupported type; else empty."""
    for volume in get_mappings(pod, "spec", "volumes"):
        if why := _find_rejection(volume):
            # With a missing claim, Kubernetes would not schedule the pod.
            is_claim = "persistentVolumeClaim" in volume
            return why if is_claim else _FAILED.format(volume=get_text(volume, "name"), why=why)
    return ""


def _find_rejection(volume: Manifest) -> str:
    if "projected" in volume:
        sources = get_mappings(volume, "projected", "sources")
        return next(filter(None, map(_find_rejection, sources)), "")
    if "persistentVolumeClaim" in volume:
        return f'persistentvolumeclaim "{get_text(volume, "persistentVolumeClaim", "claimName")}" not found'
    if "hostPath" in volume:
        return "hostPath is not allowed: a manifest must not give a task access to files of this machine"
    if volume.keys() & {"emptyDir", "configMap", "secret"}:
        return find_missing_source(volume)
    kinds = ", ".join(key for key in volume if key != "name") or "nothing"
    return f"an embedded cluster does not support volumes of the kind {kinds}"


def find_missing_source(manifest: Manifest, suffix: str = "") -> str:
    """Return an error message if `manifest` requires a ConfigMap or Secret; else empty.

    An embedded cluster has neither. The names of the checked fields are ``configMap`` and ``secret``,
    followed by `suffix`, such as ``Ref``.
    """
    for kind in ("configMap", "secret"):
        source = get_mapping(manifest, kind + suffix)
        if kind + suffix in manifest and source.get("optional") is not True:
            return f'{kind.lower()} "{get_text(source, "secretName") or get_text(source, "name")}" not found'
    return ""


@dataclass(frozen=True, slots=True)
class MountPaths:
    """Maps paths in a container, such as mount paths, to directories of this machine."""

    directories: Mapping[str, str]
    pattern: re.Pattern[str]

    @classmethod
    def from_directories(cls, directories: Mapping[str, str]) -> "MountPaths":
        """Build from `{container path: directory}`. If several container paths match, the longest applies."""
        ordered = sorted((each for each in directories if each.startswith("/")), key=len, reverse=True)
        # A match starts at the beginning of a path or after the `://` of a URL, and ends at the end of a
        # name. The slash comes first in the pattern, because the search for it is fast.
        names = "|".join(re.escape(each.removeprefix("/")) for each in ordered) or "(?!)"
        pattern = rf"/(?:(?<![\w./\-]/)|(?<=:///))(?:{names})(?![\w\-]|\.[\w\-])"
        return cls(directories, re.compile(pattern))

    def rewrite(self, value: str) -> str:
        """Replace every mapped path in a text by its directory on this machine."""
        return self.pattern.sub(lambda match: self.directories[match[0]], value)

    def has_path(self, path: str) -> bool:
        """True if `path` is a mapped path or below one."""
        return self.pattern.match(path) is not None


def build_mounts(container: Manifest, root: str) -> Mapping[str, str]:
    """Return the directories below `root` for a container's mounts, by mount path.

    Raises:
        ContainerConfigError: If a mount is not supported.
    """
    found = {}
    for mount in get_mappings(container, "volumeMounts"):
        path = str(PurePosixPath("/", get_text(mount, "mountPath").lstrip("/")))
        below = get_text(mount, "subPath")
        if get_text(mount, "subPathExpr"):
            raise ContainerConfigError(f'mount "{path}": an embedded cluster does not support subPathExpr')
        if below.startswith("/") or ".." in below.split("/"):
            raise ContainerConfigError(f'subPath "{below}": must be a relative path and not contain ".."')
        if path not in ("/", _SHARED_MEMORY):
            found[path] = "/".join(filter(None, (root, get_text(mount, "name"), *below.split("/"))))
    return found
