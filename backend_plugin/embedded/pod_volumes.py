"""Maps the volumes of a pod to directories, and rewrites paths below its mounts. Pure.

Processes of this machine have no mount namespace, so paths in their variables and arguments are rewritten.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import Manifest

# Not mapped: the shared memory of the machine serves the same purpose.
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a mount, not a temporary file.
DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_FAILED: Final = 'MountVolume.SetUp failed for volume "{volume}" : {why}'


class Unconfigured(Exception):
    """A container cannot be created from its manifest; the kubelet's `CreateContainerConfigError`."""


def volume_names(pod: Manifest) -> Sequence[str]:
    """Return the names of a pod's volumes; each becomes a directory.

    Raises:
        Unconfigured: If a volume is not available.
    """
    found = []
    for volume in entries(section(pod, "spec"), "volumes"):
        name = text(volume, "name")
        if not DNS_LABEL.fullmatch(name):
            raise Unconfigured(f'volume name "{name}" is not a DNS label')
        why = _refusal(volume)
        if why and "persistentVolumeClaim" in volume:  # Kubernetes would not schedule the pod.
            raise Unconfigured(why)
        if why:
            raise Unconfigured(_FAILED.format(volume=name, why=why))
        found.append(name)
    return found


def _refusal(volume: Manifest) -> str:
    """Return the reason why a volume is not available, or an empty string."""
    if "emptyDir" in volume:
        return ""
    if "hostPath" in volume:
        return "hostPath is not allowed: a manifest must not give a task access to files of this machine"
    if "persistentVolumeClaim" in volume:
        claim = text(section(volume, "persistentVolumeClaim"), "claimName")
        return f'persistentvolumeclaim "{claim}" not found'
    if "projected" in volume:
        sources = entries(section(volume, "projected"), "sources")
        return next((why for each in sources if (why := _refusal(each))), "")
    return _missing(volume) if "configMap" in volume or "secret" in volume else _unknown(volume)


def _missing(volume: Manifest) -> str:
    for kind, key in (("configMap", "name"), ("secret", "secretName")):
        source = section(volume, kind)
        if kind in volume and source.get("optional") is not True:
            return f'{kind.lower()} "{text(source, key) or text(source, "name")}" not found'
    return ""


def _unknown(volume: Manifest) -> str:
    kinds = ", ".join(key for key in volume if key != "name") or "nothing"
    return f"an embedded cluster does not support volumes of the kind {kinds}"


@dataclass(frozen=True, slots=True)
class Paths:
    """The directories of this machine for paths of a container."""

    directories: Mapping[str, str]
    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, directories: Mapping[str, str]) -> "Paths":
        """Build the mapping from container paths to directories. The longest matching path applies."""
        ordered = sorted((each for each in directories if each.startswith("/")), key=len, reverse=True)
        if not ordered:
            return cls(directories, None)
        # A path starts where no other path continues, or after the `//` of a URL. It ends between two names.
        # The slash comes first in the pattern, because the search for it is fast.
        names = "|".join(re.escape(each.removeprefix("/")) for each in ordered)
        pattern = rf"/(?:(?<![\w./\-]/)|(?<=:///))(?:{names})(?![\w\-]|\.[\w\-])"
        return cls(directories, re.compile(pattern))

    def rewrite(self, value: str) -> str:
        """Replace every mapped path in a text."""
        return self.pattern.sub(lambda match: self.directories[match[0]], value) if self.pattern else value

    def knows(self, path: str) -> bool:
        """True if `path` is a mapped path or below one."""
        return self.pattern is not None and self.pattern.match(path) is not None


def mounts(container: Manifest, root: str) -> Mapping[str, str]:
    """Return the directories of a container's mounts, by mount path.

    Args:
        container: The container.
        root: The directory of all volumes.

    Raises:
        Unconfigured: If a mount is not supported.
    """
    found = {}
    for mount in entries(container, "volumeMounts"):
        path, below = _normal(text(mount, "mountPath")), text(mount, "subPath")
        if text(mount, "subPathExpr"):
            raise Unconfigured(f'mount "{path}": an embedded cluster does not support subPathExpr')
        if below.startswith("/") or ".." in below.split("/"):
            raise Unconfigured(f'subPath "{below}": must be a relative path and not contain ".."')
        if path not in ("/", _SHARED_MEMORY):
            found[path] = "/".join(filter(None, (root, text(mount, "name"), *below.split("/"))))
    return found


def _normal(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
