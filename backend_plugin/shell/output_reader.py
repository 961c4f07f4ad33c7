"""Reader for the outputs of a task: the error files and ``outputs.pb`` below its output prefix."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Final
from weakref import WeakValueDictionary

from backend_plugin.core.error_document import build_unreadable_document, decode_document
from backend_plugin.core.error_files import ErrorFile, read_error_file
from backend_plugin.core.errors import BackendError
from backend_plugin.core.judging import error_parser
from backend_plugin.core.values import Manifest
from backend_plugin.shell.output_prefixes import OutputPrefixes, StoreLocation
from backend_plugin.shell.output_stores import (
    Content,
    OutputStores,
    StoreDirectory,
    StoreEntry,
    StoreUnavailable,
)
from kfpytorch_common.caught import Caught, catch

_OUTPUTS: Final = "outputs.pb"
_LONGEST_SHOWN: Final = 300
_CHECK: Final = "check that this server can reach the store, and may list and read there"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutputs:
    """The task outputs of one attempt."""

    error_files: tuple[ErrorFile, ...] = ()
    """Error files in order of modification time, if the store reports it."""
    outputs: bool | None = False
    """True if ``outputs.pb`` exists and is a regular file; None if the store could not be read."""
    more: int = 0
    """Number of further error files, which are not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """The limits for reads of task outputs."""

    seconds: float = 15.0
    """Time limit in seconds for one read, with the store's own retries. A slow read delays only terminal
    phases."""
    files: int = 32
    """Maximum number of error files; the earliest are read, because the root cause is among them."""
    file_bytes: int = 10 * 2**20
    """Maximum bytes of one file, as in FlytePropeller (`storage.limits.maxDownloadMBs` in Flyte's charts)."""
    all_bytes: int = 12 * 2**20
    """Maximum total bytes of the error files of one attempt."""
    at_once: int = 4
    """Maximum concurrent reads of one store, including those that timed out and still run."""
    all_at_once: int = 16
    """Maximum concurrent reads of all stores, because each read has a thread."""
    turn_seconds: float = 600.0
    """Maximum seconds for which a read may be queued; after a restart, thousands of reads may be queued."""


@dataclass(slots=True)
class OutputReader:
    """Reads the outputs of tasks in threads; nothing is cached."""

    prefixes: OutputPrefixes
    bounds: ReadLimits = field(default_factory=ReadLimits)
    record_failure: Callable[[str, BackendError], None] = lambda _scheme, _error: None
    """Called for every failed read, with the scheme of its store."""
    _stores: OutputStores = field(default_factory=OutputStores, init=False)
    _turns: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = field(
        default_factory=WeakValueDictionary, init=False
    )
    """The semaphore of each store, which limits its concurrent reads, so that a hanging store delays only its
    own tasks. Only queued and running reads refer to the semaphore, so an idle store has no entry."""
    _all: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._all = asyncio.Semaphore(self.bounds.all_at_once)

    async def read_outputs(self, output_prefix: str) -> TaskOutputs:
        """Return the current outputs below an output prefix; a directory that does not exist counts as empty.

        Raises:
            PrefixNotAllowed: If the settings do not allow reads of the prefix.
            StoreUnavailable: If the store does not respond in time; the message contains what to check.
            StoreUnusable: If this installation cannot read the store.
        """
        place = self.prefixes.get_location(output_prefix)
        try:
            slots = await asyncio.wait_for(self._acquire_slots(place), self.bounds.turn_seconds)
            return await asyncio.wait_for(self._read_in_thread(place, slots), self.bounds.seconds)
        except asyncio.TimeoutError as late:
            raise self._report(place, _build_timeout_error(place, self.bounds)) from late
        except BackendError as error:
            self._report(place, error)
            raise

    def _report(self, place: StoreLocation, error: BackendError) -> BackendError:
        self.record_failure(place.scheme, error)
        return error

    async def _acquire_slots(self, place: StoreLocation) -> ExitStack:
        """Wait until a read of a store may start: acquire the store's semaphore, then that of all stores.

        In this order, a read that waits for a slow store does not hold the semaphore of all stores. Return
        the context that releases both semaphores.
        """
        of_store = self._turns.setdefault((place.scheme, place.root), asyncio.Semaphore(self.bounds.at_once))
        with ExitStack() as undo:
            for each in (of_store, self._all):
                await each.acquire()
                undo.callback(each.release)
            return undo.pop_all()

    async def _read_in_thread(self, place: StoreLocation, slots: ExitStack) -> TaskOutputs:
        """Read the outputs in a new thread; when it ends, release `slots`, which limit the concurrent reads.

        The thread is a daemon thread, so that a hanging read does not block the shutdown.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[TaskOutputs] = loop.create_future()

        def set_result(result: TaskOutputs | BackendError) -> None:
            slots.close()
            if answer.done():
                return  # The caller has timed out or was cancelled.
            if isinstance(result, TaskOutputs):
                answer.set_result(result)
            else:
                answer.set_exception(result)

        def run() -> None:
            result = self._read_outputs(place)
            with suppress(RuntimeError):  # The event loop has been closed.
                loop.call_soon_threadsafe(set_result, result)

        try:
            threading.Thread(target=run, name="outcome", daemon=True).start()
        except RuntimeError as error:  # The system cannot start another thread.
            slots.close()
            raise _build_unavailable(place, error) from error
        return await answer

    def _read_outputs(self, place: StoreLocation) -> TaskOutputs | BackendError:
        deadline = time.monotonic() + self.bounds.seconds

        def read() -> TaskOutputs:
            with self._stores.open_directory(place, deadline) as directory:
                return _read_directory(directory, place, self.bounds)

        outputs = catch(read)
        if not isinstance(outputs, Caught):
            return outputs
        error = outputs.error
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return TaskOutputs()
        if isinstance(error, TimeoutError | asyncio.TimeoutError):  # Different classes before Python 3.11.
            return _build_timeout_error(place, self.bounds)
        # Each store's package has its own errors.
        return error if isinstance(error, BackendError) else _build_unavailable(place, error)


def _read_directory(directory: StoreDirectory, place: StoreLocation, bounds: ReadLimits) -> TaskOutputs:
    outputs, errors = False, []
    for entry in directory.iter_entries():
        outputs = outputs or (entry.name == _OUTPUTS and entry.regular)
        if entry.name.startswith("error") and entry.name.endswith(".pb"):
            errors.append(entry)
    errors.sort(key=lambda entry: (entry.modified, entry.name))
    read = tuple(_iter_error_files(directory, place, errors[: bounds.files], bounds))
    return TaskOutputs(error_files=read, outputs=outputs, more=max(0, len(errors) - bounds.files))


def _iter_error_files(
    directory: StoreDirectory, place: StoreLocation, entries: Sequence[StoreEntry], bounds: ReadLimits
) -> Iterator[ErrorFile]:
    sizes = _select_sizes(entries, bounds)
    contents = dict(zip(sizes, directory.read_files(sizes), strict=True))
    for entry in entries:
        content = contents.get(entry.name)
        if isinstance(content, FileNotFoundError):
            continue  # Deleted after the listing.
        if isinstance(content, Exception) and not isinstance(content, PermissionError):
            raise content
        document = _build_document(content, bounds)
        file = read_error_file({**document, "path": f"{place.url}/{entry.name}", "modified": entry.modified})
        # Summarize here, because every poll judges the job again.
        yield error_parser.summarize_file(file)


def _select_sizes(entries: Sequence[StoreEntry], bounds: ReadLimits) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    remaining = bounds.all_bytes
    for entry in entries:
        # One byte more than the limit shows that the file is larger.
        size = bounds.file_bytes + 1 if entry.size is None else entry.size
        if (entry.size or 0) <= bounds.file_bytes and size <= remaining:
            sizes[entry.name] = size
            remaining -= size
    return sizes


def _build_document(content: Content | None, bounds: ReadLimits) -> Manifest:
    """Return the decoded content of an error file; for an unreadable file, a document with the reason."""
    if content is None or (isinstance(content, bytes) and len(content) > bounds.file_bytes):
        return build_unreadable_document(f"is larger than the limit of {bounds.file_bytes:,} bytes")
    if isinstance(content, Exception):
        return build_unreadable_document(f"cannot be read: {_format_error(content)}")
    return decode_document(content)


def _build_timeout_error(place: StoreLocation, bounds: ReadLimits) -> StoreUnavailable:
    return StoreUnavailable(f"{_format_bucket(place)} did not answer within {bounds.seconds:g} s; {_CHECK}")


def _build_unavailable(place: StoreLocation, error: BaseException) -> StoreUnavailable:
    unavailable = StoreUnavailable(
        f"{_format_bucket(place)} cannot be read: {_format_error(error)}; {_CHECK}"
    )
    unavailable.__cause__ = error
    return unavailable


def _format_error(error: BaseException) -> str:
    text = shorten(str(error), _LONGEST_SHOWN)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _format_bucket(place: StoreLocation) -> str:
    return f"{place.scheme}://{place.root}"
