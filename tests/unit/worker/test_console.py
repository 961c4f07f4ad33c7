"""Lines that end in a carriage return appear while they change, at a limited rate."""

import os
from pathlib import Path
from typing import Any

import pytest

from flytekitplugins.kfpytorch.worker.console import Console


class Rank:
    """A rank that writes to a console; its standard input and error are not used."""

    def __init__(self, directory: Path | None) -> None:
        self.console = Console(directory, all_ranks=True)
        self._ends = self.console.open_slot("worker-0").ends
        self.console.set_rank(0, 1)

    def write(self, text: str, *, at: float) -> None:
        os.write(self._ends[1], text.encode())
        for fd in self.console.list_readable():
            self.console.read_available(fd)
        self.console.show_redrawn(at)

    def close(self) -> None:
        for fd in self._ends:
            os.close(fd)
        self.console.read_remaining()
        self.console.close()


@pytest.mark.parametrize("drawn", ["\r{}%", "{}%\r"])
def test_progress_bar_is_shown_every_five_seconds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], drawn: str
) -> None:
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
def test_unfinished_line_is_shown_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], written: Any, shown: str, at_the_end: str
) -> None:
    rank = Rank(tmp_path)
    for at, text in written:
        rank.write(text, at=at)
    before = capfd.readouterr().out
    rank.close()
    assert (before, capfd.readouterr().out) == (shown, at_the_end)
