"""Which places a task may have its outputs looked for in: a list of the platform's, never the task's word.

A prefix comes from whoever calls. It may choose among buckets and directories that are listed, and
nothing else: no host, no credentials, no chain of file systems. Whether links lead out of a directory
is seen where it is opened, in `stores`.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from backend_plugin.core.errors import BackendError

STORES: Final[Mapping[str, str]] = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "memory": "fsspec",
}
"""By the scheme of an object store: the package that reads it."""

# Nobody else writes to this process's memory; whoever wants it lists it.
DEFAULT: Final = tuple(f"{scheme}://*" for scheme in STORES if scheme != "memory")

# A key of S3 has 1,024 bytes at most, a path of Linux 4,096.
_LONGEST: Final = 4_096
_URL: Final = re.compile(r"(?P<scheme>[^:/]*)://(?P<rest>.*)", re.DOTALL)
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*-]{1,255}")
# What some reader of URLs takes for more than a name: a version, a chain, a user, an escape.
_ODD: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\?#]|::")


class PrefixRefused(BackendError):
    """Nothing is read there, whoever asks: it is no place, or not one that is listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory of a store, or of this machine's disks."""

    scheme: str
    """A key of `STORES`, or ``file``."""
    root: str
    """The bucket; of files the directory that is listed, below which links are not followed."""
    path: str
    """Below the root, without a slash at its end."""

    @property
    def url(self) -> str:
        """As people write it."""
        start = "file://" if self.scheme == "file" else f"{self.scheme}://"
        return "/".join(part for part in (f"{start}{self.root.rstrip('/')}", self.path) if part)


class Prefixes:
    """The places that are listed: ``s3://bucket/``, ``gs://*``, ``s3://team-*/flyte``, ``file:///data/flyte``.

    Args:
        listed: Each with the bucket or directory below which everything may be looked at.
        stores: The schemes that are known, beside ``file``.

    Raises:
        PrefixRefused: If one of them is no such place.
    """

    def __init__(self, listed: Iterable[str] = DEFAULT, *, stores: Collection[str] = STORES) -> None:
        self._stores = stores
        self._listed = tuple(_read(each, _PATTERN, stores) for each in listed)

    def why_not(self, prefix: str) -> str | None:
        """Why nothing is read there, in a sentence without a full stop; None if it may be."""
        try:
            self.place(prefix)
        except PrefixRefused as refusal:
            return str(refusal)
        return None

    def place(self, prefix: str) -> Place:
        """Where it is.

        Raises:
            PrefixRefused: If it is no place, or not below a listed one.
        """
        said = _read(prefix, _BUCKET, self._stores)
        for listed in self._listed:
            found = _below(said, listed)
            if found is not None:
                return found
        # The places of the platform are not listed: the message goes to any author.
        raise PrefixRefused(f"the output prefix {_shown(prefix)} is in no place that this server may read")

    @property
    def schemes(self) -> frozenset[str]:
        """Of all that is listed."""
        return frozenset(each.scheme for each in self._listed)


def _read(said: str, bucket: re.Pattern[str], stores: Collection[str]) -> Place:
    if len(said) > _LONGEST or _ODD.search(said):
        raise PrefixRefused(f"{_shown(said)} is no output prefix: write a plain URL without :: ? # or \\")
    url = _URL.fullmatch(said)
    if url is None or url["scheme"] == "file":
        return _directory(said, url["rest"] if url else said)
    scheme, (root, _, path) = url["scheme"], url["rest"].partition("/")
    if scheme not in stores:
        known = ", ".join((*stores, "file"))
        raise PrefixRefused(f"{_shown(said)} is in no store that is read; known are: {known}")
    if not bucket.fullmatch(root):
        raise PrefixRefused(f"{_shown(said)} names no bucket; write {scheme}://bucket/path")
    return Place(scheme=scheme, root=root, path=_whole(said, path.rstrip("/")))


def _directory(said: str, path: str) -> Place:
    if not path.startswith("/") or path.startswith("//"):
        raise PrefixRefused(f"{_shown(said)} is no output prefix; write scheme://bucket/path or /a/path")
    return Place(scheme="file", root=os.path.normpath("/" + _whole(said, path.strip("/"))), path="")


def _whole(said: str, path: str) -> str:
    # A store takes them for names, but what is between us and it may not.
    if any(part in (".", "..") for part in path.split("/")):
        raise PrefixRefused(f"{_shown(said)} has . or .. in it; write the path without")
    return path


def _below(said: Place, listed: Place) -> Place | None:
    if said.scheme != listed.scheme:
        return None
    if said.scheme == "file":
        inner = _inner(said.root, listed.root)
        return None if inner is None else Place(scheme="file", root=listed.root, path=inner)
    if not fnmatchcase(said.root, listed.root):
        return None
    return said if _inner(said.path, listed.path) is not None else None


def _inner(path: str, directory: str) -> str | None:
    """What is left of a path below a directory; None if it is not there."""
    start = directory.rstrip("/")
    if path == directory:
        return ""
    return path[len(start) :].strip("/") if not start or path.startswith(f"{start}/") else None


def _shown(said: str) -> str:
    # A value in a message identifies itself; nobody reads more of it there.
    return repr(said if len(said) <= 120 else f"{said[:117]}...")
