"""Tests of the store checks, with and without write access."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import fsspec
import pytest

from backend_plugin.doctor import external_probes
from backend_plugin.doctor.facts import Facts, ProbeResult


def probe(*prefixes: str, read_only: bool) -> Sequence[ProbeResult]:
    facts = Facts(namespace="any")
    return asyncio.run(external_probes.probe_external(facts, prefixes, None, read_only=read_only)).stores


def test_store_is_unchanged_by_the_probe_and_a_read_only_probe_writes_nothing(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mtime_ns
    for read_only in (True, False):
        (store,) = probe(f"file://{tmp_path}", read_only=read_only)
        assert (store.trouble, [*tmp_path.iterdir()]) == ("", [])
        assert (tmp_path.stat().st_mtime_ns == before) is read_only


def test_missing_store_is_reported_with_the_required_permissions(tmp_path: Path) -> None:
    rows = ((True, "read", " get and list "), (False, "written", " get, put, list and delete "))
    for read_only, done, rights in rows:
        (store,) = probe(f"file://{tmp_path}/none", read_only=read_only)
        assert store.trouble.startswith(f"cannot be {done}: ")
        assert rights in store.remedy


def test_read_only_probe_detects_a_missing_permission_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/private/there/data", b"a")

    def refuse(*_: object, **__: object) -> bytes:
        raise PermissionError("403: GetObject is denied")

    monkeypatch.setattr(type(store), "cat_file", refuse)
    (found,) = probe("memory://private/there", read_only=True)
    assert found.trouble == "cannot be read: PermissionError: 403: GetObject is denied"
    assert " get and list " in found.remedy


def test_empty_prefix_in_a_closed_bucket_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def list_objects(_: object, path: str, **__: object) -> list[str]:
        raise FileNotFoundError(path) if path == "/closed/below" else OSError("Forbidden: closed")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "ls", list_objects)
    (found,) = probe("memory://closed/below", read_only=True)
    assert found.trouble == ""


def test_empty_prefix_in_an_existing_bucket_is_accepted() -> None:
    fsspec.filesystem("memory").pipe_file("/bucket/there", b"")
    well, other = probe("memory://bucket/none/yet", "memory://other/none", read_only=True)
    assert well.trouble == ""
    assert other.trouble.startswith("cannot be read: FileNotFoundError")
