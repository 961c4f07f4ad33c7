"""Listing and reading a directory: of an object store through fsspec, of this machine's disks without it.

fsspec would follow links out of a listed directory, and wait for ever at a pipe. Everything here blocks;
`outcome` has threads for it. Errors are those of the store's package, whatever they are.
"""

import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, Protocol, TypeAlias

from backend_plugin.core.errors import BackendError
from backend_plugin.shell.prefixes import STORES, Place, PrefixRefused

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
# What the packages call it: s3fs, adlfs, gcsfs, fsspec's memory and others.
_MODIFIED: Final = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")

Content: TypeAlias = bytes | Exception


class StoreUnavailable(BackendError):
    """The store did not answer, or not in time: the same question may be answered later."""


class StoreUnusable(BackendError):
    """This server cannot read that store before somebody has changed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file of a directory."""

    name: str
    size: int | None
    """None where the store does not say."""
    modified: str = ""
    """RFC 3339; empty where the store does not say."""
    regular: bool = True
    """A file with content of its own: no link, pipe or socket."""


class Directory(Protocol):
    """A directory that has been found, or a prefix of which a store knows no more than its objects."""

    def entries(self) -> Iterator[Entry]:
        """Its files, in no order; those in directories below are not among them."""

    def read(self, wanted: Mapping[str, int]) -> Sequence[Content]:
        """Of each name so many bytes from its beginning, or what prevented it."""


class Stores:
    """The stores that have been looked at, each with its connections.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._locks = {scheme: threading.Lock() for scheme in STORES}

    def open(self, place: Place, deadline: float) -> AbstractContextManager[Directory]:
        """A directory, as it is now; `deadline` by `time.monotonic` is where the wish to know it ends.

        Raises:
            PrefixRefused: If a link stands on the way.
            StoreUnusable: If the package is missing that reads this store.
        """
        if place.scheme == "file":
            return _on_disk(place, deadline)
        filesystem = self._known.get(place.scheme) or self._filesystem(place.scheme, deadline)
        return nullcontext(_Objects(filesystem, f"{place.root}/{place.path}".rstrip("/"), deadline))

    def _filesystem(self, scheme: str, deadline: float) -> Any:
        """Return the client of a store; the threads that wait for the same one build it once."""
        lock = self._locks.setdefault(scheme, threading.Lock())
        if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        try:
            return self._known.get(scheme) or self._build(scheme)
        finally:
            lock.release()

    def _build(self, scheme: str) -> Any:
        import fsspec

        try:
            made = fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as missing:
            package = STORES.get(scheme, scheme)
            raise StoreUnusable(
                f"{scheme}:// needs the package {package}, which is not installed beside this server; "
                f"write: pip install {package}"
            ) from missing
        self._known[scheme] = made
        return made


class _Objects:
    """A prefix of an object store."""

    def __init__(self, filesystem: Any, path: str, deadline: float) -> None:
        self._filesystem, self._path, self._deadline = filesystem, path, deadline

    def entries(self) -> Iterator[Entry]:
        self._filesystem.invalidate_cache(self._path)
        for found in self._ask("ls", self._path, detail=True):
            above, _, name = str(found["name"]).strip("/").rpartition("/")
            # Of an object's own name a store lists that object, and some list the prefix itself.
            if found.get("type") != "directory" and above == self._path.strip("/"):
                yield Entry(name=name, size=found.get("size"), modified=_modified(found))

    def read(self, wanted: Mapping[str, int]) -> Sequence[Content]:
        # Stores refuse a range of what is empty.
        full = {name: size for name, size in wanted.items() if size}
        paths = [f"{self._path}/{name}" for name in full]
        answers = self._ask("cat_ranges", paths, [0] * len(full), list(full.values())) if full else ()
        read = dict(zip(full, answers, strict=True))
        return [read.get(name, b"") for name in wanted]

    def _ask(self, method: str, *args: Any, **said: Any) -> Any:
        """Nearly all stores are asynchronous behind fsspec, and can be left when the time is over."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if not self._filesystem.async_impl:
            return getattr(self._filesystem, method)(*args, **said)
        from fsspec.asyn import sync

        asked = getattr(self._filesystem, f"_{method}")
        return sync(self._filesystem.loop, asked, *args, timeout=left, **said)


@contextmanager
def _on_disk(place: Place, deadline: float) -> Iterator[Directory]:
    # No link leads out of the whole disk.
    whole = place.root == "/"
    at = os.open(f"/{place.path}", _DIRECTORY) if whole else _root(place)
    try:
        for part in () if whole else filter(None, place.path.split("/")):
            below = _below(at, part, place)
            os.close(at)
            at = below
        yield _Disk(at, deadline)
    finally:
        os.close(at)


def _root(place: Place) -> int:
    try:
        return os.open(place.root, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreUnavailable(f"there is no directory {place.root}; is it mounted here?") from error


def _below(at: int, part: str, place: Place) -> int:
    try:
        return os.open(part, _READ | os.O_DIRECTORY, dir_fd=at)
    except OSError as error:
        if _is_link(at, part):
            raise PrefixRefused(f"{place.url} goes through the link {part}, which is not followed") from error
        raise


def _is_link(at: int, name: str) -> bool:
    """Which of its errors a system gives for a link, differs."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


class _Disk:
    """A directory that is open, and stays the one that it was whatever is renamed meanwhile."""

    def __init__(self, at: int, deadline: float) -> None:
        self._at, self._deadline = at, deadline

    def entries(self) -> Iterator[Entry]:
        with os.scandir(self._at) as found:
            for each in found:
                if time.monotonic() > self._deadline:
                    raise TimeoutError
                if each.is_dir(follow_symlinks=False):
                    continue
                seen = each.stat(follow_symlinks=False)
                moment = datetime.fromtimestamp(seen.st_mtime, timezone.utc)
                yield Entry(
                    name=each.name,
                    size=seen.st_size,
                    modified=moment.isoformat(),
                    regular=stat.S_ISREG(seen.st_mode),
                )

    def read(self, wanted: Mapping[str, int]) -> Sequence[Content]:
        return [self._content(name, size) for name, size in wanted.items()]

    def _content(self, name: str, size: int) -> Content:
        if time.monotonic() > self._deadline:
            raise TimeoutError
        try:
            at = os.open(name, _READ, dir_fd=self._at)
        except OSError as error:
            if _is_link(self._at, name):
                return PermissionError("it is a link, which is not followed")
            return error
        with os.fdopen(at, "rb") as file:
            if not stat.S_ISREG(os.fstat(at).st_mode):
                return PermissionError("it is no regular file")
            return file.read(size)


def _modified(found: Mapping[str, Any]) -> str:
    said = next((found[key] for key in _MODIFIED if found.get(key)), None)
    if isinstance(said, int | float):
        return datetime.fromtimestamp(said, timezone.utc).isoformat()
    return said.isoformat() if isinstance(said, datetime) else str(said or "")
