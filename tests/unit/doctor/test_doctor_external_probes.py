"""Tests of the store checks, with and without write access."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from backend_plugin.doctor import external_probes
from backend_plugin.doctor.facts import Facts


def troubles(*prefixes: str, read_only: bool) -> Sequence[str]:
    facts = asyncio.run(
        external_probes.probe_external(Facts(namespace="any"), prefixes, None, read_only=read_only)
    )
    return [each.trouble for each in facts.stores]


@pytest.mark.parametrize("read_only", [True, False])
def test_store_is_unchanged_by_the_probe(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "outputs").mkdir()
    assert troubles(f"file://{tmp_path}/outputs", read_only=read_only) == [""]
    assert [*(tmp_path / "outputs").iterdir()] == []


def test_read_only_probe_writes_nothing(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mtime_ns
    assert troubles(f"file://{tmp_path}", read_only=True) == [""]
    assert tmp_path.stat().st_mtime_ns == before
    assert troubles(f"file://{tmp_path}", read_only=False) == [""]
    assert tmp_path.stat().st_mtime_ns != before


@pytest.mark.parametrize(
    ("read_only", "done", "rights"),
    [(True, "read", " get and list "), (False, "written", " get, put, list and delete ")],
)
def test_missing_store_is_reported_with_the_required_permissions(
    tmp_path: Path, read_only: bool, done: str, rights: str
) -> None:
    prefix = f"file://{tmp_path}/none"
    facts = asyncio.run(
        external_probes.probe_external(Facts(namespace="any"), [prefix], None, read_only=read_only)
    )
    (store,) = facts.stores
    assert store.trouble.startswith(f"cannot be {done}: ")
    assert rights in store.remedy


def test_empty_prefix_in_an_existing_bucket_is_accepted() -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file("/bucket/there", b"")
    well, other = troubles("memory://bucket/none/yet", "memory://other/none", read_only=True)
    assert well == ""
    assert other.startswith("cannot be read: FileNotFoundError")
