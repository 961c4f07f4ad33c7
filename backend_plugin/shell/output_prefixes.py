"""The output prefixes that this server may read, from a list that the admin configures.

A prefix comes from a caller, so it may only select a location in a listed bucket or directory. It must not
contain a host, credentials or a chained fsspec URL (``zip::s3://``). Symbolic links below a listed
directory are rejected in `output_stores`.
"""

import os
import re
from collections.abc import Iterable, Mapping
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
"""The package that reads an object store, by URL scheme."""

# `memory://` contains no outputs of other processes, so it must be listed explicitly.
DEFAULT: Final = tuple(f"{scheme}://*" for scheme in STORES if scheme != "memory")

# An S3 key has at most 1,024 bytes, a Linux path 4,096.
_LONGEST: Final = 4_096
_URL: Final = re.compile(r"(?P<scheme>[^:/]*)://(?P<rest>.*)", re.DOTALL)
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*-]{1,255}")
# Control characters, and characters that some URL parser treats as syntax.
_ODD: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\?#]|::")


class PrefixNotAllowed(BackendError):
    """The output prefix is malformed, or is not below a location that the settings allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLocation:
    """A location in an object store or on the disks of this machine."""

    scheme: str
    """A key of `STORES`, or ``file``."""
    root: str
    """The bucket; for files, the listed directory, below which links are not followed."""
    path: str
    """The path below the root, without a trailing slash."""

    @property
    def url(self) -> str:
        """The URL of the location."""
        return "/".join(filter(None, (f"{self.scheme}://{self.root.rstrip('/')}", self.path)))


class OutputPrefixes:
    """The locations that a server may read, such as ``s3://bucket/``, ``gs://*`` or ``file:///data/flyte``.

    Args:
        listed: Buckets and directories; everything below them may be read.

    Raises:
        PrefixNotAllowed: If an item is malformed.
    """

    def __init__(self, listed: Iterable[str] = DEFAULT) -> None:
        self._listed = tuple(_parse_prefix(each, _PATTERN) for each in listed)

    def find_rejection_reason(self, prefix: str) -> str | None:
        """Return why this server may not read the prefix, without a full stop; None if reading is allowed."""
        try:
            self.get_location(prefix)
        except PrefixNotAllowed as refusal:
            return str(refusal)
        return None

    def get_location(self, prefix: str) -> StoreLocation:
        """Return the location of an output prefix.

        Raises:
            PrefixNotAllowed: If the prefix is malformed, or not below a location that the settings allow.
        """
        location = _parse_prefix(prefix, _BUCKET)
        for listed in self._listed:
            inner = _find_below(location, listed)
            if inner is not None:
                return inner
        # The listed locations are not shown, because any author can see this message.
        raise PrefixNotAllowed(
            f"the output prefix {_format_value(prefix)} is not below a location that this server may read"
        )

    @property
    def schemes(self) -> frozenset[str]:
        """The URL schemes of the locations that the server may read, such as ``s3`` or ``file``."""
        return frozenset(each.scheme for each in self._listed)


def is_prefix(written: str) -> bool:
    """True if the text is a location that the setting ``output-prefixes`` can allow."""
    try:
        _parse_prefix(written, _BUCKET)
    except PrefixNotAllowed:
        return False
    return True


def _parse_prefix(written: str, bucket: re.Pattern[str]) -> StoreLocation:
    if len(written) > _LONGEST or _ODD.search(written):
        raise PrefixNotAllowed(
            f"{_format_value(written)} is not an output prefix: write a plain URL without :: ? # or \\"
        )
    url = _URL.fullmatch(written)
    if url is None or url["scheme"] == "file":
        return _parse_directory(written, url["rest"] if url else written)
    return _parse_url(written, url, bucket)


def _parse_url(written: str, url: re.Match[str], bucket: re.Pattern[str]) -> StoreLocation:
    scheme, (root, _, path) = url["scheme"], url["rest"].partition("/")
    if scheme not in STORES:
        known = ", ".join((*STORES, "file"))
        raise PrefixNotAllowed(
            f"{_format_value(written)} has an unsupported scheme; supported schemes: {known}"
        )
    if not bucket.fullmatch(root):
        raise PrefixNotAllowed(f"{_format_value(written)} contains no bucket; write {scheme}://bucket/path")
    return StoreLocation(scheme=scheme, root=root, path=_require_plain_path(written, path.rstrip("/")))


def _parse_directory(written: str, path: str) -> StoreLocation:
    if not path.startswith("/") or path.startswith("//"):
        raise PrefixNotAllowed(
            f"{_format_value(written)} is not an output prefix; write scheme://bucket/path or /a/path"
        )
    return StoreLocation(
        scheme="file", root=os.path.normpath("/" + _require_plain_path(written, path.strip("/"))), path=""
    )


def _require_plain_path(written: str, path: str) -> str:
    # An object store treats these as names, but a proxy before it may resolve them.
    if any(part in (".", "..") for part in path.split("/")):
        raise PrefixNotAllowed(f"{_format_value(written)} contains . or ..; write the path without them")
    return path


def _find_below(location: StoreLocation, listed: StoreLocation) -> StoreLocation | None:
    if location.scheme != listed.scheme:
        return None
    if location.scheme == "file":
        inner = _find_relative_path(location.root, listed.root)
        return None if inner is None else StoreLocation(scheme="file", root=listed.root, path=inner)
    if not fnmatchcase(location.root, listed.root):
        return None
    return location if _find_relative_path(location.path, listed.path) is not None else None


def _find_relative_path(path: str, directory: str) -> str | None:
    start = directory.rstrip("/")
    if path == directory:
        return ""
    return path[len(start) :].strip("/") if not start or path.startswith(f"{start}/") else None


def _format_value(written: str) -> str:
    # A message needs only the start of a long value.
    return repr(written if len(written) <= 120 else f"{written[:117]}...")
