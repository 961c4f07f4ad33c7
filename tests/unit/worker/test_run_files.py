"""Log directories of runs, and the lines that a console shows at a limited rate."""

import fcntl
import os
import re
import stat
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

from flytekitplugins.kfpytorch.worker import run_files
from flytekitplugins.kfpytorch.worker.console import Console
from kfpytorch_common.forkserver import client, launch


def refuse(warning):
    raise AssertionError(warning)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FLYTE_KFPYTORCH_LOG_DIR", str(tmp_path / "logs"))
    return tmp_path / "logs"


def test_run_gets_a_new_log_directory_at_the_configured_location(root):
    made = [run_files.create_log_directory("examples.digits.train", refuse) for _ in range(2)]
    assert sorted(root.iterdir()) == made
    for path in root.iterdir():
        assert re.fullmatch(r"\d{8}-\d{6}-\d{6}-examples\.digits\.train", path.name)


def test_task_name_cannot_lead_out_of_the_log_directory(root):
    for task, end in (("../../etc/x y", "-..-..-etc-x-y"), ("a" * 300, "-" + "a" * 80)):
        made = run_files.create_log_directory(task, refuse)
        assert (made.parent, made.name[22:]) == (root, end)


def test_default_log_directory_is_the_state_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("FLYTE_KFPYTORCH_LOG_DIR", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for state in (tmp_path / ".local/state", tmp_path / "state"):
        assert run_files.create_log_directory("train", refuse).parent == state / "kfpytorch/runs"
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_logs_of_the_last_fifty_runs_are_kept(root):
    made = [run_files.create_log_directory(f"run{number}", refuse) for number in range(53)]
    assert sorted(root.iterdir()) == made[3:]


def test_directories_of_other_programs_are_never_removed(root):
    root.mkdir()
    theirs = [root / f"0-experiment-{number}" for number in range(60)]
    for path in theirs:
        path.mkdir()
    run_files.create_log_directory("train", refuse)
    assert [path for path in theirs if not path.exists()] == []


def test_log_directory_is_temporary_if_the_location_is_not_writable(root, tmp_path, monkeypatch):
    root.write_text("a file is in the way")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    warnings = []
    made = run_files.create_log_directory("train", warnings.append)
    assert (made.parent, stat.S_IMODE(made.stat().st_mode)) == (tmp_path, 0o700)
    assert warnings == [
        f"cannot create logs in {root} (Not a directory): they are in {made}; "
        "set FLYTE_KFPYTORCH_LOG_DIR to a writable directory"
    ]
    assert root.read_text() == "a file is in the way"


@pytest.fixture
def connection():
    server = launch.start_fresh_server(())
    yield server.client
    server.stop()


def test_workspace_is_kept_only_with_files_and_after_a_successful_run(connection):
    with run_files.create_workspace(connection) as made:
        (Path(made) / "model.pt").write_text("weights")
    connection.wait_until_handled()
    assert (Path(made) / "model.pt").read_text() == "weights"
    with run_files.create_workspace(connection) as empty:
        (Path(empty) / "directory").mkdir()
    with pytest.raises(TypeError), run_files.create_workspace(connection) as failed:
        Path(failed, "model.pt").write_bytes("not bytes")  # type: ignore[arg-type]
    assert [Path(path).exists() for path in (empty, failed)] == [False, False]


def test_scratch_larger_than_memory_is_on_disk(connection, tmp_path):
    with run_files.create_scratch(connection, 1 << 60) as scratch:
        assert not scratch.is_relative_to("/dev/shm")
    assert not scratch.exists()


@pytest.mark.linux
def test_only_unlocked_directories_of_ended_processes_are_removed(connection: client.Client) -> None:
    # This number is not a pid of this machine. A process in another container may have it.
    killed, alive = (Path("/dev/shm") / f"kfpytorch-99999999{digit}-{uuid.uuid4().hex}" for digit in "01")
    for path in (killed, alive):
        path.mkdir()
    lock = os.open(alive, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)

    with run_files.create_scratch(connection, 0):
        assert not killed.exists()
        assert alive.exists()
    os.close(lock)
    with run_files.create_scratch(connection, 0):
        assert not alive.exists()


def test_run_directories_are_private_and_locked_until_the_end(connection):
    with (
        run_files.create_workspace(connection) as workspace,
        run_files.create_scratch(connection, 0) as scratch,
    ):
        assert [stat.S_IMODE(Path(each).stat().st_mode) for each in (workspace, scratch)] == [0o700, 0o700]
        other = os.open(scratch, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


class Rank:
    """A rank that writes to a console; its standard input and error are not used."""

    def __init__(self, directory):
        self.console = Console(directory, all_ranks=True)
        self._ends = self.console.open_slot("worker-0").ends
        self.console.set_rank(0, 1)

    def write(self, text, *, at):
        os.write(self._ends[1], text.encode())
        for fd in self.console.list_readable():
            self.console.read_available(fd)
        self.console.show_redrawn(at)

    def close(self):
        for fd in self._ends:
            os.close(fd)
        self.console.read_remaining()
        self.console.close()


@pytest.mark.parametrize("drawn", ["\r{}%", "{}%\r"])
def test_progress_bar_is_shown_every_five_seconds(tmp_path, capfd, drawn) -> None:
    rank = Rank(tmp_path)
    for step in range(101):
        rank.write(drawn.format(step), at=step / 10)
    rank.write("\nready\n", at=10.1)
    rank.close()
    assert capfd.readouterr().out.splitlines() == ["[r1] 50%", "[r1] 100%", "[r1] ready"]
    assert (tmp_path / "rank1.log").read_text() == "50%\n100%\nready\n"


@pytest.mark.parametrize(
    ("written", "shown", "at_the_end"),
    [
        ([(step / 10, f"\r{step * 10}%") for step in range(11)], "", "[r1] 100%\n"),
        ([(0, "\r57%"), *((second, "") for second in range(1, 30))], "[r1] 57%\n", ""),
        ([(0, "epoch 1 ... "), (60, "still ... ")], "", "[r1] epoch 1 ... still ... \n"),
    ],
    ids=["short", "stalled", "without carriage return"],
)
def test_unfinished_line_is_shown_once(tmp_path, capfd, written, shown, at_the_end) -> None:
    rank = Rank(tmp_path)
    for at, text in written:
        rank.write(text, at=at)
    before = capfd.readouterr().out
    rank.close()
    assert (before, capfd.readouterr().out) == (shown, at_the_end)


def test_input_for_an_ended_process_is_discarded(monkeypatch):
    rank, (reader, typed) = Rank(None), os.pipe()
    # As with a terminal: the process has the other end, which is closed when it ends.
    end, rank.console.slots[0].answers = os.pipe()
    os.close(end)
    with os.fdopen(reader) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        rank.console.request_input(0)
        assert reader in rank.console.list_readable()
        os.write(typed, b"yes\n")
        rank.console.read_available(reader)
        assert reader not in rank.console.list_readable()
    os.close(typed)
    rank.close()
