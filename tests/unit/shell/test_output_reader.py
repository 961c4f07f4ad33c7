import asyncio
import os
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fsspec
import pytest
from flyteidl.core.errors_pb2 import ContainerError, ErrorDocument
from fsspec.implementations.memory import MemoryFileSystem

from backend_plugin.core.judging import file_terminations
from backend_plugin.core.observed import Observed
from backend_plugin.shell.output_prefixes import STORES, OutputPrefixes, PrefixNotAllowed
from backend_plugin.shell.output_reader import OutputReader, ReadLimits, TaskOutputs
from backend_plugin.shell.output_stores import OutputStores, StoreUnavailable, StoreUnusable
from kfpytorch_common.causes import Cause

_ERRORS = {"gone.pb": FileNotFoundError, "denied.pb": PermissionError, "cut.pb": ConnectionError}


def document(message="no data", seconds=0, **fields):
    error = ContainerError(code="USER:ValueError", message=message, **fields)
    error.timestamp.seconds = seconds
    return ErrorDocument(error=error).SerializeToString()


def read_outputs(prefix, *listed, **bounds):
    return asyncio.run(
        OutputReader(OutputPrefixes(listed or [prefix]), ReadLimits(**bounds)).read_outputs(prefix)
    )


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture(params=["memory", "file"])
def prefix(request, tmp_path, memory):
    return "memory://bucket/out" if request.param == "memory" else f"file://{tmp_path}/out"


def write(prefix, **files):
    for name, content in files.items():
        fsspec.filesystem(prefix.partition(":")[0], auto_mkdir=True).pipe_file(
            f"{prefix}/{name.replace('__', '.')}", content
        )


def test_missing_location_has_no_outputs(prefix):
    listed = prefix.removesuffix("/out")
    assert read_outputs(prefix, listed) == TaskOutputs()
    write(prefix, x=b"")
    assert read_outputs(prefix, listed) == TaskOutputs()
    assert read_outputs(f"{prefix}/x", listed) == TaskOutputs()


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\x03ab", b""])
def test_unreadable_file_still_counts_as_an_error_file(prefix: str, content: bytes) -> None:
    write(prefix, error__pb=content)
    (file,) = read_outputs(prefix).error_files
    message = "an error file that cannot be read: it is not an ErrorDocument" if content else ""
    assert (file.message, file.worker, file.path) == (message, "", f"{prefix}/error.pb")


def test_error_file_without_a_valid_time_has_its_modification_time(prefix):
    write(prefix, error__pb=document(seconds=10**17))
    (file,) = read_outputs(prefix).error_files
    assert file.message == "no data"
    assert abs(datetime.now(timezone.utc) - file.at).total_seconds() < 60


def test_large_error_files_are_reported_but_not_read(prefix):
    write(prefix, error_a__pb=document("x" * 1000), error_b__pb=document())
    messages = {file.path[-4]: file.message for file in read_outputs(prefix, file_bytes=500).error_files}
    assert messages == {"a": "an error file that is larger than the limit of 500 bytes", "b": "no data"}
    assert [file.message for file in read_outputs(prefix, all_bytes=500).error_files].count("no data") == 1


def test_earliest_of_many_error_files_are_read(tmp_path):
    for index in range(20):
        (tmp_path / f"error-{index}.pb").write_bytes(document())
        os.utime(tmp_path / f"error-{index}.pb", (1_000_000 - index, 1_000_000 - index))
    found = read_outputs(str(tmp_path), files=3)
    earliest = [f"error-{index}.pb" for index in (19, 18, 17)]
    assert ([Path(file.path).name for file in found.error_files], found.more) == (earliest, 17)


def test_long_error_message_is_truncated(prefix):
    write(prefix, error__pb=document("a" * 10**6 + "b" * 10**6))
    (file,) = read_outputs(prefix).error_files
    assert file.message == "a" * 1_000
    assert file.failure.message == "a" * 16_000


def test_symlink_out_of_a_listed_directory_is_rejected(tmp_path):
    secret, listed = tmp_path / "secret", tmp_path / "listed"
    write(f"file://{secret}", error__pb=document())
    listed.mkdir()
    (listed / "out").symlink_to(secret)
    for prefix in (f"{listed}/out", f"{listed}/out/."):
        with pytest.raises(PrefixNotAllowed):
            read_outputs(prefix, str(listed))


def test_symlinks_are_followed_if_they_or_the_root_are_listed(tmp_path):
    write(f"file://{tmp_path}/there", outputs__pb=b"")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert read_outputs(str(tmp_path / "link")) == TaskOutputs(outputs=True)
    assert read_outputs(f"file://{tmp_path}/link", "file:///") == TaskOutputs(outputs=True)
    assert read_outputs(f"file://{tmp_path}/absent", "file:///") == TaskOutputs()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "it is not a regular file"),
        (lambda path: path.symlink_to("/etc/hostname"), "it is a symbolic link, which is not followed"),
    ],
)
def test_pipe_or_symlink_is_no_output_and_no_readable_error_file(tmp_path, make, reason) -> None:
    for name in ("outputs.pb", "error.pb"):
        make(tmp_path / name)
    found = read_outputs(str(tmp_path))
    assert not found.outputs
    message = f"an error file that cannot be read: PermissionError: {reason}"
    assert [file.message for file in found.error_files] == [message]


def test_directory_is_no_error_file(prefix):
    for name in ("error.pb", "outputs.pb"):
        write(f"{prefix}/{name}", part=b"x")
    assert read_outputs(prefix, prefix.removesuffix("/out")) == TaskOutputs()


def test_file_deleted_while_a_directory_is_listed_is_skipped(tmp_path):
    files = {tmp_path / "error-a.pb", tmp_path / "error-b.pb"}
    for file in files:
        file.touch()
    place = OutputPrefixes([f"file://{tmp_path}"]).get_location(f"file://{tmp_path}")
    with OutputStores().open_directory(place, time.monotonic() + 10) as directory:
        entries = directory.iter_entries()
        (other,) = files - {tmp_path / next(entries).name}
        other.unlink()
        assert list(entries) == []


def test_missing_listed_directory_is_a_store_error(tmp_path):
    with pytest.raises(StoreUnavailable, match="check that it is mounted here"):
        read_outputs(f"{tmp_path}/absent/out", f"{tmp_path}/absent")


class OddStore(MemoryFileSystem):
    """A store whose constructor and listing call functions of the test."""

    protocol = "odd"
    build: Any = None
    answer: Any = None

    def __init__(self, *args, **options):
        type(self).build()
        super().__init__(*args, **options)

    def ls(self, path, detail=True, **options):
        return type(self).answer()

    def cat_file(self, path, start=None, end=None, **options):
        raise _ERRORS[path.rpartition("-")[2]](path)


@pytest.fixture
def odd(monkeypatch):
    monkeypatch.setitem(STORES, "odd", "odd")  # Another scheme than those of installed packages.
    fsspec.register_implementation("odd", OddStore, clobber=True)
    OddStore.build = lambda: None
    return OddStore


async def test_hanging_store_times_out_and_does_not_block_others(odd, tmp_path):
    (tmp_path / "outputs.pb").touch()
    release = threading.Event()
    hanging = []

    def hang():
        hanging.append(threading.get_ident())
        release.wait()

    odd.answer = hang
    failures = []
    bounds = ReadLimits(seconds=0.3, at_once=2, turn_seconds=0.3)
    prefixes = OutputPrefixes(["odd://a", str(tmp_path)])
    outcomes = OutputReader(prefixes, bounds, lambda *failure: failures.append(failure))
    with pytest.raises(StoreUnavailable, match=r"odd://a did not answer within 0.3 s; check that"):
        await outcomes.read_outputs("odd://a/b")
    assert await outcomes.read_outputs(str(tmp_path)) == TaskOutputs(outputs=True)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await outcomes.read_outputs("odd://a/b")
    assert await outcomes.read_outputs(str(tmp_path)) == TaskOutputs(outputs=True)
    assert len(hanging) == 2  # Both threads hang, and a third is not allowed.
    release.set()
    assert [(scheme, type(error)) for scheme, error in failures] == [("odd", StoreUnavailable)] * 3


@pytest.mark.parametrize("error", [RuntimeError("no credentials " + "x" * 1000), ValueError(), OSError("x")])
def test_store_exception_is_reported_with_a_remedy(odd: type[OddStore], error: Exception) -> None:
    def fail():
        raise error

    odd.answer = fail
    with pytest.raises(StoreUnavailable) as raised:
        read_outputs("odd://a/b")
    assert str(raised.value).startswith(f"odd://a cannot be read: {type(error).__name__}")
    assert len(str(raised.value)) < 600
    assert raised.value.__cause__ is error


def listing(*names):
    return lambda: [{"name": f"a/b/{name}", "size": 3, "type": "file"} for name in names]


def test_forbidden_error_file_counts_and_an_interrupted_read_is_a_store_error(odd):
    odd.answer = listing("error-gone.pb")  # It was deleted after the listing.
    assert read_outputs("odd://a/b") == TaskOutputs()
    odd.answer = listing("error-denied.pb")
    (file,) = read_outputs("odd://a/b").error_files
    assert file.message.startswith("an error file that cannot be read: PermissionError")
    odd.answer = listing("error-cut.pb")
    with pytest.raises(StoreUnavailable, match="ConnectionError"):
        read_outputs("odd://a/b")


def test_store_without_its_package_is_reported(monkeypatch):
    monkeypatch.setitem(STORES, "lost", "lostfs")  # Some of the real packages may be installed.
    fsspec.register_implementation("lost", "lostfs.LostFileSystem", clobber=True, errtxt="Install lostfs")
    with pytest.raises(StoreUnusable, match="run: pip install lostfs"):
        read_outputs("lost://a/b")


async def wait_until(true):
    for _ in range(1_000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


def count_threads():
    return sum(each.name == "outcome" for each in threading.enumerate())


async def test_reads_of_many_stores_use_a_limited_number_of_threads(odd):
    go_on, built, inside = threading.Event(), list[None](), list[None]()

    def hold():
        inside.append(None)
        go_on.wait(20)
        return []

    # Another thread could create a second client in the meantime.
    odd.build, odd.answer = lambda: built.append(time.sleep(0.05)), hold
    collector = OutputReader(OutputPrefixes(["odd://*"]), ReadLimits(all_at_once=3, at_once=2))
    asked = [asyncio.ensure_future(collector.read_outputs(f"odd://bucket-{index}/x")) for index in range(30)]
    await wait_until(lambda: len(inside) == 3)
    threads = count_threads()
    go_on.set()
    assert (threads, len(built)) == (3, 1)
    assert await asyncio.gather(*asked) == [TaskOutputs()] * 30
    # A store without a running read is forgotten.
    await wait_until(lambda: len(collector._turns) == 0)


async def test_wait_for_a_store_client_is_part_of_the_read_timeout(odd):
    go_on = threading.Event()
    odd.build = lambda: go_on.wait(20)
    collector = OutputReader(OutputPrefixes(["odd://*"]), ReadLimits(seconds=0.1))
    asked = [asyncio.ensure_future(collector.read_outputs(f"odd://{name}/x")) for name in ("one", "two")]
    results = await asyncio.gather(*asked, return_exceptions=True)
    # The thread of the second read has ended, although the first one still creates the client.
    await wait_until(lambda: count_threads() == 1)
    go_on.set()
    assert [type(each) for each in results] == [StoreUnavailable] * 2


def test_many_long_error_files_are_kept_within_one_megabyte(tmp_path):
    report = "✗ train failed on rank 3 (worker-2) after 2.0 s (oom-gpu)\n  RuntimeError: no\n"
    message = f"Trace:\n\n{'é' * 150_000}\nMessage:\n\n{report}"
    for index in range(50):
        (tmp_path / f"error-{index}.pb").write_bytes(document(message, worker=f"j-worker-{index}"))
    found = read_outputs(str(tmp_path))
    kept = [
        len(f"{file.message}{file.failure.message}{file.failure.traceback}".encode())
        for file in found.error_files
        if file.failure is not None
    ]
    assert (len(kept), found.more) == (32, 18)
    assert max(kept) <= 40_000
    assert sum(kept) <= 2**20
    ends = file_terminations.list_file_terminations(found.error_files, Observed(job=None), {})
    ends = [(each.cause, each.failure.rank, each.failure.exception) for each in ends]
    assert ends == [(Cause.OOM_GPU, 3, "RuntimeError")] * 32


async def test_outputs_that_appear_later_are_found(prefix):
    outcomes = OutputReader(OutputPrefixes([prefix.removesuffix("/out")]))
    assert await outcomes.read_outputs(prefix) == TaskOutputs()
    write(prefix, outputs__pb=b"")
    assert await outcomes.read_outputs(prefix) == TaskOutputs(outputs=True)
