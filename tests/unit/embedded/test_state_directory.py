"""State directories: which ones are accepted, and which files are changed or removed there."""

import errno
import inspect
import os
import sys
from pathlib import Path

import pytest

from backend_plugin.embedded.pod_directory import PodDirectory
from backend_plugin.embedded.shim import files
from backend_plugin.embedded.state_lock import MARKER, StateUnusable, find_foreign_files
from backend_plugin.embedded.store import Store


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_new_state_directory_is_marked_and_private(tmp_path: Path) -> None:
    state = tmp_path / "a" / "state"
    Store.open(state).close()
    assert (mode(state), (state / MARKER).is_file()) == (0o700, True)


@pytest.mark.parametrize("names", [[], ["server.json"], ["lost+found", "runs", "signing.keys"]], ids=str)
def test_directory_with_only_expected_files_is_used_and_keeps_its_mode(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()
    tmp_path.chmod(0o755)
    Store.open(tmp_path).close()
    assert mode(tmp_path) == 0o755
    kept = {path.name: mode(path) for path in tmp_path.iterdir() if path.name not in names}
    assert set(kept.values()) == {0o600}
    Store.open(tmp_path).close()


def test_remedy_for_a_rejected_directory_works(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "create" in find_foreign_files(tmp_path)
    (tmp_path / MARKER).touch()
    Store.open(tmp_path).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["lock", "objects.sqlite"])
def test_symlink_in_place_of_a_state_file_is_not_written_to(tmp_path: Path, name: str) -> None:
    state, mine = tmp_path / "state", tmp_path / "mine"
    Store.open(state).close()
    mine.write_text("mine")
    (state / name).unlink()
    (state / name).symlink_to(mine)
    with pytest.raises(StateUnusable, match=str(state)):
        Store.open(state)
    assert mine.read_text() == "mine"


def test_file_in_place_of_the_state_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("mine")
    with pytest.raises(StateUnusable, match="state: is not a directory"):
        Store.open(tmp_path / "state")


# ---- pod directories


def test_only_marked_directories_are_pod_directories(tmp_path: Path) -> None:
    ours, theirs, link = (PodDirectory(tmp_path / name) for name in ("ours", "theirs", "link"))
    ours.create()
    theirs.path.mkdir()
    link.path.symlink_to(ours.path)
    assert PodDirectory.list_all(tmp_path) == [ours]
    for each in (theirs, link, ours):
        each.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "theirs"]


def test_inaccessible_directory_of_a_pod_is_ignored(tmp_path, monkeypatch):
    PodDirectory(tmp_path / "pod").create()

    def refuse(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "stat", refuse)
    assert PodDirectory.list_all(tmp_path) == []


@pytest.mark.parametrize("where", ["work", "tmp", "logs/main/0.0.log", "work/deep/er"])
def test_symlink_left_by_a_pod_is_removed_without_its_target(tmp_path: Path, where: str) -> None:
    mine, pod = tmp_path / "mine", PodDirectory(tmp_path / "pods" / "u")
    (mine / "below").mkdir(parents=True)
    (mine / "below" / "file").write_text("mine")
    mine.chmod(0o755)
    pod.create()
    link = pod.path / where
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(mine)
    pod.remove()
    assert not pod.path.exists()
    assert ((mine / "below" / "file").read_text(), mode(mine)) == ("mine", 0o755)


def test_short_temporary_directory_is_removed_with_its_pod(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 80)
    pods = [PodDirectory(long / name) for name in ("one", "two")]
    for each in pods:
        each.create()
    shorts = [Path(each.ensure_tmpdir()) for each in pods]
    (shorts[0] / "file").touch()
    link = pods[1].path / "tmp"
    link.unlink()
    link.symlink_to(shorts[0])  # The link now points to the directory of another pod.
    pods[1].remove()
    assert (shorts[0] / "file").exists()
    pods[0].remove()
    assert not shorts[0].exists()
    shorts[1].rmdir()


def test_directory_with_too_many_levels_raises_no_error(tmp_path: Path) -> None:
    (tmp_path / "/".join("a" * 200)).mkdir(parents=True)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        files.remove_tree(str(tmp_path / "a"))
    finally:
        sys.setrecursionlimit(limit)


def test_link_with_a_slash_is_removed_without_its_target(tmp_path: Path) -> None:
    mine, link = tmp_path / "mine", tmp_path / "link"
    mine.mkdir()
    link.symlink_to(mine)
    files.remove_tree(f"{link}/")
    assert [*tmp_path.iterdir()] == [mine]
