"""A pod's volumes → directories, and paths below its mounts → paths below those.

PURE. There are no mount namespaces, so what names a mounted path is rewritten. Lives here: what becomes of
each kind of volume. Does not: making directories.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import Manifest

# The machine's own is as shared as a pod's is.
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a mount, no temporary file.
DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_FAILED: Final = 'MountVolume.SetUp failed for volume "{volume}" : {why}'


class Unconfigured(Exception):
    """A container cannot be made of its manifest here; the kubelet's `CreateContainerConfigError`."""


def volume_names(pod: Manifest) -> Sequence[str]:
    """The volumes of a pod, each to be a directory of it; raises `Unconfigured`."""
    found = []
    for volume in entries(section(pod, "spec"), "volumes"):
        name = text(volume, "name")
        if not DNS_LABEL.fullmatch(name):
            raise Unconfigured(f'volume name "{name}" is no DNS label')
        why = _refusal(volume)
        if why and "persistentVolumeClaim" in volume:  # Its pod would not even be scheduled.
            raise Unconfigured(why)
        if why:
            raise Unconfigured(_FAILED.format(volume=name, why=why))
        found.append(name)
    return found


def _refusal(volume: Manifest) -> str:
    """Why a volume cannot be had; empty if it can."""
    if "emptyDir" in volume:
        return ""
    if "hostPath" in volume:
        return "hostPath is not allowed: a task does not reach this machine's files by its manifest"
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
    return f"an embedded cluster has no volumes of the kind {kinds}"


@dataclass(frozen=True, slots=True)
class Paths:
    """Which paths of a container are where on this machine."""

    directories: Mapping[str, str]
    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, directories: Mapping[str, str]) -> "Paths":
        """Those below the keys; a longer key goes before a shorter one."""
        ordered = sorted((each for each in directories if each.startswith("/")), key=len, reverse=True)
        if not ordered:
            return cls(directories, None)
        # A path begins where no other one goes on, or after the // of a URL; and ends between two names. Its
        # slash comes first in the pattern, for it is quickly found.
        names = "|".join(re.escape(each.removeprefix("/")) for each in ordered)
        pattern = rf"/(?:(?<![\w./\-]/)|(?<=:///))(?:{names})(?![\w\-]|\.[\w\-])"
        return cls(directories, re.compile(pattern))

    def rewrite(self, value: str) -> str:
        """Every path in a text, whether it is the whole of it or not."""
        return self.pattern.sub(lambda match: self.directories[match[0]], value) if self.pattern else value

    def knows(self, path: str) -> bool:
        """Whether it is one of ours."""
        return self.pattern is not None and self.pattern.match(path) is not None


def mounts(container: Manifest, root: str) -> Mapping[str, str]:
    """Where a container's mounts are, given the directory of all volumes; raises `Unconfigured`."""
    found = {}
    for mount in entries(container, "volumeMounts"):
        path, below = _normal(text(mount, "mountPath")), text(mount, "subPath")
        if text(mount, "subPathExpr"):
            raise Unconfigured(f'mount "{path}": an embedded cluster has no subPathExpr')
        if below.startswith("/") or ".." in below.split("/"):
            raise Unconfigured(f'subPath "{below}": must be a relative path and not contain ".."')
        if path not in ("/", _SHARED_MEMORY):
            found[path] = "/".join(filter(None, (root, text(mount, "name"), *below.split("/"))))
    return found


def _normal(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
