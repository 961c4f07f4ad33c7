"""Tests of the limits on many error files and on many stores."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest
from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument
from fsspec.implementations.memory import MemoryFileSystem

from backend_plugin.core.judging import file_terminations
from backend_plugin.shell.output_prefixes import STORES, OutputPrefixes
from backend_plugin.shell.output_reader import OutputReader, ReadLimits, TaskOutputs
from backend_plugin.shell.output_stores import StoreUnavailable
from kfpytorch_common.causes import Cause

REPORT = (
    "Trace:\n\n{trace}\nMessage:\n\n"
    "✗ train failed on rank 3 (worker-2) after 2.0 s (oom-gpu)\n  RuntimeError: no\n"
)


class Held(MemoryFileSystem):  # type: ignore[misc]
    """A store with a slow constructor, whose listings block until `go_on` is set."""

    protocol = "held"
    store: dict[str, Any] = {}  # noqa: RUF012 - as in the base class.
    built = 0
    inside = 0
    go_on = threading.Event()

    def __init__(self, *args: Any, **options: Any) -> None:
        """Sleep, so that another thread could create a second client."""
        type(self).built += 1
        time.sleep(0.05)
        super().__init__(*args, **options)

    def ls(self, path: str, *args: Any, **options: Any) -> list[Any]:
        """Return an empty list once `go_on` is set."""
        type(self).inside += 1
        self.go_on.wait(20)
        return []


@pytest.fixture
def build_held_store(monkeypatch: pytest.MonkeyPatch) -> type[Held]:
    monkeypatch.setitem(STORES, "held", "held")  # Another scheme than those of installed packages.
    fsspec.register_implementation("held", Held, clobber=True)
    Held.built, Held.inside, Held.go_on = 0, 0, threading.Event()
    return Held


def outcomes(**bounds: Any) -> OutputReader:
    return OutputReader(OutputPrefixes(["held://*"]), ReadLimits(**bounds))


async def wait_until(true: Any) -> None:
    for _ in range(1_000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


async def test_reads_of_many_stores_use_a_limited_number_of_threads(build_held_store: type[Held]) -> None:
    collector = outcomes(all_at_once=3, at_once=2)
    asked = [asyncio.ensure_future(collector.read_outputs(f"held://bucket-{index}/x")) for index in range(30)]
    await wait_until(lambda: build_held_store.inside == 3)
    threads = sum(each.name == "outcome" for each in threading.enumerate())
    build_held_store.go_on.set()
    assert (threads, build_held_store.built) == (3, 1)
    assert await asyncio.gather(*asked) == [TaskOutputs()] * 30


async def test_store_without_a_running_read_is_forgotten(build_held_store: type[Held]) -> None:
    collector = outcomes(turn_seconds=0.05, at_once=1)
    first = asyncio.ensure_future(collector.read_outputs("held://a/x"))
    await wait_until(lambda: build_held_store.inside == 1)
    with pytest.raises(StoreUnavailable):
        await collector.read_outputs("held://a/x")
    build_held_store.go_on.set()
    await first
    assert len(collector._turns) == 0


async def test_wait_for_a_store_client_is_part_of_the_read_timeout(
    build_held_store: type[Held], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(self: Any, *args: Any, **options: Any) -> None:
        build_held_store.go_on.wait(20)
        MemoryFileSystem.__init__(self, *args, **options)

    # The client of a store is from a third-party package, so a patch is acceptable here.
    monkeypatch.setattr(Held, "__init__", build)
    collector = outcomes(seconds=0.1)
    asked = [asyncio.ensure_future(collector.read_outputs(f"held://{name}/x")) for name in ("one", "two")]
    results = await asyncio.gather(*asked, return_exceptions=True)
    # The thread of the second read has ended, although the first one still creates the client.
    await wait_until(lambda: sum(each.name == "outcome" for each in threading.enumerate()) == 1)
    build_held_store.go_on.set()
    assert [type(each).__name__ for each in results] == ["StoreUnavailable"] * 2


def test_many_long_error_files_are_kept_within_one_megabyte(tmp_path: Path) -> None:
    for index in range(50):
        message = REPORT.format(trace="é" * 150_000)
        error = ErrorDocument(error=ContainerError(message=message, worker=f"j-worker-{index}"))
        (tmp_path / f"error-{index}.pb").write_bytes(error.SerializeToString())
    found = asyncio.run(
        OutputReader(OutputPrefixes((str(tmp_path),)), ReadLimits()).read_outputs(str(tmp_path))
    )
    kept = [
        len(f"{file.message}{file.failure.message}{file.failure.traceback}".encode())
        for file in found.error_files
        if file.failure is not None
    ]
    assert (len(kept), found.more) == (32, 18)
    assert max(kept) <= 40_000
    assert sum(kept) <= 2**20
    deaths = file_terminations.list_file_terminations(found.error_files, (), {})
    assert [(each.cause, each.failure.rank, each.failure.exception) for each in deaths] == [
        (Cause.OOM_GPU, 3, "RuntimeError")
    ] * 32
