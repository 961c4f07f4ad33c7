import asyncio
import os
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fsspec
import pytest
from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument
from fsspec.implementations.memory import MemoryFileSystem

from backend_plugin.shell.output_prefixes import STORES, OutputPrefixes, PrefixNotAllowed
from backend_plugin.shell.output_reader import OutputReader, ReadLimits, TaskOutputs
from backend_plugin.shell.output_stores import OutputStores, StoreUnavailable, StoreUnusable


def document(message: str = "no data", seconds: int = 0) -> bytes:
    error = ContainerError(code="USER:ValueError", message=message)
    error.timestamp.seconds = seconds
    return ErrorDocument(error=error).SerializeToString()


def read_outputs(prefix: str, *listed: str, **bounds: Any) -> TaskOutputs:
    return asyncio.run(
        OutputReader(OutputPrefixes(listed or [prefix]), ReadLimits(**bounds)).read_outputs(prefix)
    )


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture(params=["memory", "file"])
def prefix(request: pytest.FixtureRequest, tmp_path: Path, memory: MemoryFileSystem) -> str:
    return "memory://bucket/out" if request.param == "memory" else f"file://{tmp_path}/out"


def write(prefix: str, **files: bytes) -> None:
    for name, content in files.items():
        fsspec.filesystem(prefix.partition(":")[0], auto_mkdir=True).pipe_file(
            f"{prefix}/{name.replace('__', '.')}", content
        )


def test_missing_location_has_no_outputs(prefix: str) -> None:
    listed = prefix.removesuffix("/out")
    assert read_outputs(prefix, listed) == TaskOutputs()
    write(prefix, x=b"")
    assert read_outputs(prefix, listed) == TaskOutputs()
    assert read_outputs(f"{prefix}/x", listed) == TaskOutputs()


async def test_outputs_that_appear_later_are_found(prefix: str) -> None:
    outcomes = OutputReader(OutputPrefixes([prefix.removesuffix("/out")]))
    assert await outcomes.read_outputs(prefix) == TaskOutputs()
    write(prefix, outputs__pb=b"")
    assert await outcomes.read_outputs(prefix) == TaskOutputs(outputs=True)


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\x03ab", b""])
def test_unreadable_file_still_counts_as_an_error_file(prefix: str, content: bytes) -> None:
    write(prefix, error__pb=content)
    (file,) = read_outputs(prefix).error_files
    message = "an error file that cannot be read: it is not an ErrorDocument" if content else ""
    assert (file.message, file.worker, file.path) == (message, "", f"{prefix}/error.pb")


def test_error_file_without_a_valid_time_has_its_modification_time(prefix: str) -> None:
    write(prefix, error__pb=document(seconds=10**17))
    (file,) = read_outputs(prefix).error_files
    assert file.message == "no data"
    assert abs(datetime.now(timezone.utc) - file.at).total_seconds() < 60


def test_large_error_files_are_reported_but_not_read(prefix: str) -> None:
    write(prefix, error_a__pb=document("x" * 1000), error_b__pb=document())
    messages = {file.path[-4]: file.message for file in read_outputs(prefix, file_bytes=500).error_files}
    assert messages == {"a": "an error file that is larger than the limit of 500 bytes", "b": "no data"}
    assert [file.message for file in read_outputs(prefix, all_bytes=500).error_files].count("no data") == 1


def test_earliest_of_many_error_files_are_read(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / f"error-{index}.pb").write_bytes(document())
        os.utime(tmp_path / f"error-{index}.pb", (1_000_000 - index, 1_000_000 - index))
    found = read_outputs(str(tmp_path), files=3)
    earliest = [f"error-{index}.pb" for index in (19, 18, 17)]
    assert ([Path(file.path).name for file in found.error_files], found.more) == (earliest, 17)


def test_long_error_message_is_truncated(prefix: str) -> None:
    write(prefix, error__pb=document("a" * 10**6 + "b" * 10**6))
    (file,) = read_outputs(prefix).error_files
    assert file.message == "a" * 1_000
    assert file.failure.message == "a" * 16_000


def test_symlink_out_of_a_listed_directory_is_rejected(tmp_path: Path) -> None:
    secret, listed = tmp_path / "secret", tmp_path / "listed"
    write(f"file://{secret}", error__pb=document())
    listed.mkdir()
    (listed / "out").symlink_to(secret)
    for prefix in (f"{listed}/out", f"{listed}/out/."):
        with pytest.raises(PrefixNotAllowed):
            read_outputs(prefix, str(listed))
    (listed / "error.pb").symlink_to(secret / "error.pb")
    (file,) = read_outputs(str(listed)).error_files
    assert file.message.startswith(
        "an error file that cannot be read: PermissionError: it is a symbolic link"
    )


def test_symlinks_are_followed_if_they_or_the_root_are_listed(tmp_path: Path) -> None:
    write(f"file://{tmp_path}/there", outputs__pb=b"")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert read_outputs(str(tmp_path / "link")) == TaskOutputs(outputs=True)
    assert read_outputs(f"file://{tmp_path}/link", "file:///") == TaskOutputs(outputs=True)
    assert read_outputs(f"file://{tmp_path}/absent", "file:///") == TaskOutputs()


def test_named_pipe_is_no_readable_error_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "error.pb")
    (file,) = read_outputs(str(tmp_path)).error_files
    assert file.message == "an error file that cannot be read: PermissionError: it is not a regular file"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/hostname")])
def test_outputs_must_be_a_regular_file(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "outputs.pb")
    assert read_outputs(str(tmp_path)) == TaskOutputs()


def test_directory_is_no_error_file(prefix: str) -> None:
    for name in ("error.pb", "outputs.pb"):
        write(f"{prefix}/{name}", part=b"x")
    assert read_outputs(prefix, prefix.removesuffix("/out")) == TaskOutputs()


def test_file_deleted_while_a_directory_is_listed_is_skipped(tmp_path: Path) -> None:
    files = {tmp_path / "error-a.pb", tmp_path / "error-b.pb"}
    for file in files:
        file.touch()
    place = OutputPrefixes([f"file://{tmp_path}"]).get_location(f"file://{tmp_path}")
    with OutputStores().open_directory(place, time.monotonic() + 10) as directory:
        entries = directory.iter_entries()
        (other,) = files - {tmp_path / next(entries).name}
        other.unlink()
        assert list(entries) == []


def test_missing_listed_directory_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check that it is mounted here"):
        read_outputs(f"{tmp_path}/absent/out", f"{tmp_path}/absent")


_ERRORS = {"gone.pb": FileNotFoundError, "denied.pb": PermissionError, "cut.pb": ConnectionError}


class OddError(MemoryFileSystem):
    """A store whose listing calls a function of the test."""

    protocol = "odd"
    answer: Any = None

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        return type(self).answer()

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        raise _ERRORS[path.rpartition("-")[2]](path)


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> type[OddError]:
    monkeypatch.setitem(STORES, "odd", "odd")  # Another scheme than those of installed packages.
    fsspec.register_implementation("odd", OddError, clobber=True)
    return OddError


async def test_hanging_store_times_out_and_does_not_block_others(odd: type[OddError], tmp_path: Path) -> None:
    (tmp_path / "outputs.pb").touch()
    release = threading.Event()
    hanging: list[int] = []

    def hang() -> None:
        hanging.append(threading.get_ident())
        release.wait()

    odd.answer = hang
    troubles: list[tuple[str, Exception]] = []
    bounds = ReadLimits(seconds=0.3, at_once=2, turn_seconds=0.3)
    prefixes = OutputPrefixes(["odd://a", str(tmp_path)])
    outcomes = OutputReader(prefixes, bounds, lambda *trouble: troubles.append(trouble))
    with pytest.raises(StoreUnavailable, match=r"odd://a did not answer within 0.3 s; check that"):
        await outcomes.read_outputs("odd://a/b")
    assert await outcomes.read_outputs(str(tmp_path)) == TaskOutputs(outputs=True)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await outcomes.read_outputs("odd://a/b")
    assert await outcomes.read_outputs(str(tmp_path)) == TaskOutputs(outputs=True)
    assert len(hanging) == 2  # Both threads hang, and a third is not allowed.
    release.set()
    assert [(scheme, type(error)) for scheme, error in troubles] == [("odd", StoreUnavailable)] * 3


@pytest.mark.parametrize("error", [RuntimeError("no credentials " + "x" * 1000), ValueError(), OSError("x")])
def test_store_exception_is_reported_with_a_remedy(odd: type[OddError], error: Exception) -> None:
    def fail() -> None:
        raise error

    odd.answer = fail
    with pytest.raises(StoreUnavailable) as raised:
        read_outputs("odd://a/b")
    assert str(raised.value).startswith(f"odd://a cannot be read: {type(error).__name__}")
    assert len(str(raised.value)) < 600
    assert raised.value.__cause__ is error


def listing(*names: str) -> Any:
    return lambda: [{"name": f"a/b/{name}", "size": 3, "type": "file"} for name in names]


def test_forbidden_error_file_counts_and_an_interrupted_read_is_a_store_error(odd: type[OddError]) -> None:
    odd.answer = listing("error-gone.pb")  # It was deleted after the listing.
    assert read_outputs("odd://a/b") == TaskOutputs()
    odd.answer = listing("error-denied.pb")
    (file,) = read_outputs("odd://a/b").error_files
    assert file.message.startswith("an error file that cannot be read: PermissionError")
    odd.answer = listing("error-cut.pb")
    with pytest.raises(StoreUnavailable, match="ConnectionError"):
        read_outputs("odd://a/b")


def test_store_without_its_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STORES, "lost", "lostfs")  # Some of the real packages may be installed.
    fsspec.register_implementation("lost", "lostfs.LostFileSystem", clobber=True, errtxt="Install lostfs")
    with pytest.raises(StoreUnusable, match="run: pip install lostfs"):
        read_outputs("lost://a/b")
