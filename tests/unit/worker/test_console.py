"""Lines that end in a carriage return appear while they change, at a limited rate."""

import os
from pathlib import Path

import pytest

from flytekitplugins.kfpytorch.worker.console import Console


class Rank:
    """A rank that writes to a console; its standard input and error are not used."""

    def __init__(self, directory: Path | None) -> None:
        self.console = Console(directory, all_ranks=True)
        _, (self._input, self._output, self._error) = self.console.open_slot("worker-0")
        self.console.set_rank(0, 1)

    def write(self, text: str, *, at: float) -> None:
        os.write(self._output, text.encode())
        for fd in self.console.list_streams():
            self.console.read_available(fd)
        self.console.show_redrawn(at)

    def close(self) -> None:
        for fd in (self._input, self._output, self._error):
            os.close(fd)
        self.console.read_remaining()
        self.console.close()


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


@pytest.mark.parametrize("drawn", ["\r{}%", "{}%\r"])
def test_progress_bar_is_shown_every_five_seconds(
    rank: Rank, tmp_path: Path, capfd: pytest.CaptureFixture[str], drawn: str
) -> None:
    for step in range(101):
        rank.write(drawn.format(step), at=step / 10)
    rank.write("\nready\n", at=10.1)
    rank.close()

    assert capfd.readouterr().out.splitlines() == ["[r1] 50%", "[r1] 100%", "[r1] ready"]
    assert (tmp_path / "rank1.log").read_text() == "50%\n100%\nready\n"


def test_short_progress_bar_is_one_line(rank: Rank, capfd: pytest.CaptureFixture[str]) -> None:
    for step in range(0, 101, 10):
        rank.write(f"\r{step}%", at=step / 100)
    rank.close()

    assert capfd.readouterr().out.splitlines() == ["[r1] 100%"]


def test_stalled_progress_bar_is_shown_once(rank: Rank, capfd: pytest.CaptureFixture[str]) -> None:
    rank.write("\r57%", at=0)
    for second in range(1, 30):
        rank.console.show_redrawn(second)
    shown = capfd.readouterr().out.splitlines()
    rank.close()

    assert shown == ["[r1] 57%"]
    assert capfd.readouterr().out == ""


def test_unfinished_line_without_carriage_return_is_shown_at_its_end(
    rank: Rank, capfd: pytest.CaptureFixture[str]
) -> None:
    rank.write("epoch 1 ... ", at=0)
    rank.write("still ... ", at=60)
    shown = capfd.readouterr().out
    rank.write("loss 0.5\n", at=61)
    rank.close()

    assert (shown, capfd.readouterr().out) == ("", "[r1] epoch 1 ... still ... loss 0.5\n")
