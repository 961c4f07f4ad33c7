"""Lists directories and reads files: object stores through fsspec, local disks directly.

Local disks are read without fsspec, which would follow links out of a listed directory and block at a pipe.
All calls block, so `output_reader` runs them in threads. Calls also raise errors of the store's package.
"""

import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, TypeAlias

from backend_plugin.core.errors import BackendError
from backend_plugin.shell.output_prefixes import STORES, PrefixNotAllowed, StoreLocation

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
# The key of the modification time in s3fs, adlfs, gcsfs, fsspec's memory filesystem and others.
_MODIFIED: Final = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")

Content: TypeAlias = bytes | Exception


class StoreUnavailable(BackendError):
    """The store did not respond in time, or returned a retryable error."""


class StoreUnusable(BackendError):
    """This server cannot read the store until an admin changes its installation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEntry:
    """A file or an object (not a subdirectory) in a directory that `OutputStores` has opened."""

    name: str
    size: int | None
    """The size in bytes; None if the store does not report it."""
    modified: str = ""
    """The modification time in RFC 3339; empty if the store does not report it."""
    regular: bool = True
    """True for a regular file; False for a link, pipe or socket."""


class OutputStores:
    """The clients of object stores, created on first use.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._locks = {scheme: threading.Lock() for scheme in STORES}

    def open_directory(
        self, place: StoreLocation, deadline: float
    ) -> "AbstractContextManager[StoreDirectory]":
        """Open a directory; after `deadline`, a value of `time.monotonic`, all calls raise `TimeoutError`.

        Raises:
            PrefixNotAllowed: If the path contains a symbolic link.
            StoreUnavailable: If the directory that the settings allow does not exist on this machine.
            StoreUnusable: If the package that reads this store is not installed.
        """
        if place.scheme == "file":
            return _open_on_disk(place, deadline)
        filesystem = self._known.get(place.scheme) or self._get_filesystem(place.scheme, deadline)
        return nullcontext(_ObjectPrefix(filesystem, f"{place.root}/{place.path}".rstrip("/"), deadline))

    def _get_filesystem(self, scheme: str, deadline: float) -> Any:
        """Return the client of a store; it is created only once, even if several threads need it."""
        lock = self._locks[scheme]
        if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        try:
            return self._known.get(scheme) or self._create_filesystem(scheme)
        finally:
            lock.release()

    def _create_filesystem(self, scheme: str) -> Any:
        import fsspec

        try:
            made = fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as missing:
            raise StoreUnusable(
                f"{scheme}:// needs the package {STORES[scheme]}, which is not installed; "
                f"run: pip install {STORES[scheme]}"
            ) from missing
        self._known[scheme] = made
        return made


class _ObjectPrefix:
    def __init__(self, filesystem: Any, path: str, deadline: float) -> None:
        self._filesystem, self._path, self._deadline = filesystem, path, deadline

    def iter_entries(self) -> Iterator[StoreEntry]:
        self._filesystem.invalidate_cache(self._path)
        for listed in self._call_filesystem("ls", self._path, detail=True):
            above, _, name = str(listed["name"]).strip("/").rpartition("/")
            # `ls` of an object's own name lists that object, and some stores also list the prefix itself.
            if listed.get("type") != "directory" and above == self._path.strip("/"):
                yield StoreEntry(name=name, size=listed.get("size"), modified=_format_modified(listed))

    def read_files(self, sizes: Mapping[str, int]) -> Sequence[Content]:
        # Stores reject a range request for an empty object.
        full = {name: size for name, size in sizes.items() if size}
        paths = [f"{self._path}/{name}" for name in full]
        answers = (
            self._call_filesystem("cat_ranges", paths, [0] * len(full), list(full.values())) if full else ()
        )
        read = dict(zip(full, answers, strict=True))
        return [read.get(name, b"") for name in sizes]

    def _call_filesystem(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the fsspec filesystem; the timeout of an asynchronous one is the time left."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        if not self._filesystem.async_impl:
            return getattr(self._filesystem, method)(*args, **options)
        from fsspec.asyn import sync

        coroutine_method = getattr(self._filesystem, f"_{method}")
        return sync(self._filesystem.loop, coroutine_method, *args, timeout=remaining, **options)


@contextmanager
def _open_on_disk(place: StoreLocation, deadline: float) -> "Iterator[StoreDirectory]":
    # Links need no check if the whole disk is listed.
    is_root = place.root == "/"
    at = os.open(f"/{place.path}", _DIRECTORY) if is_root else _open_root(place)
    try:
        for part in () if is_root else filter(None, place.path.split("/")):
            below = _open_below(at, part, place)
            os.close(at)
            at = below
        yield _DiskDirectory(at, deadline)
    finally:
        os.close(at)


def _open_root(place: StoreLocation) -> int:
    try:
        return os.open(place.root, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreUnavailable(
            f"the directory {place.root} does not exist; check that it is mounted here"
        ) from error


def _open_below(at: int, part: str, place: StoreLocation) -> int:
    try:
        return os.open(part, _READ | os.O_DIRECTORY, dir_fd=at)
    except OSError as error:
        if _is_link(at, part):
            raise PrefixNotAllowed(
                f"{place.url} contains the symbolic link {part}, which is not followed"
            ) from error
        raise


def _is_link(at: int, name: str) -> bool:
    """True if `name` in the directory `at` is a symbolic link; the errno of `open` may not show it."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


class _DiskDirectory:
    """An open directory on a local disk. Reads do not fail if the directory is renamed."""

    def __init__(self, at: int, deadline: float) -> None:
        self._at, self._deadline = at, deadline

    def iter_entries(self) -> Iterator[StoreEntry]:
        with os.scandir(self._at) as listed:
            for each in listed:
                if time.monotonic() > self._deadline:
                    raise TimeoutError
                if each.is_dir(follow_symlinks=False):
                    continue
                try:
                    status = each.stat(follow_symlinks=False)
                except FileNotFoundError:  # Deleted after the directory was listed.
                    continue
                moment = datetime.fromtimestamp(status.st_mtime, timezone.utc)
                yield StoreEntry(
                    name=each.name,
                    size=status.st_size,
                    modified=moment.isoformat(),
                    regular=stat.S_ISREG(status.st_mode),
                )

    def read_files(self, sizes: Mapping[str, int]) -> Sequence[Content]:
        return [self._read_content(name, size) for name, size in sizes.items()]

    def _read_content(self, name: str, size: int) -> Content:
        if time.monotonic() > self._deadline:
            raise TimeoutError
        try:
            at = os.open(name, _READ, dir_fd=self._at)
        except OSError as error:
            if _is_link(self._at, name):
                return PermissionError("it is a symbolic link, which is not followed")
            return error
        with os.fdopen(at, "rb") as file:
            if not stat.S_ISREG(os.fstat(at).st_mode):
                return PermissionError("it is not a regular file")
            return file.read(size)


StoreDirectory: TypeAlias = _DiskDirectory | _ObjectPrefix
"""An open directory on a local disk, or a prefix in an object store, which may contain no objects."""


def _format_modified(info: Mapping[str, Any]) -> str:
    modified = next((info[key] for key in _MODIFIED if info.get(key)), None)
    if isinstance(modified, int | float):
        return datetime.fromtimestamp(modified, timezone.utc).isoformat()
    return modified.isoformat() if isinstance(modified, datetime) else str(modified or "")
