"""Reports through a socket the position of each rank of a run: the line of code that it executes."""

import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flytekitplugins.kfpytorch.worker import failure_file, rank_groups
from kfpytorch_common.causes import Failure
from kfpytorch_common.positions import SOCKET_NAME

# Maximum time to send to a client that does not read (seconds).
_PATIENCE: Final = 1.0


@dataclass
class _Rank:
    number: int
    directory: Path

    def read_position(self) -> Failure:
        found = failure_file.read_position(self.directory)
        return Failure(rank=self.number, replica="", exit_code=0, time_ns=0, **found)


class RankPositions:
    """The ranks of a run, and the socket at which `kfpytorch stacks` requests their lines of code."""

    def __init__(self, directory: Path) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._asking: list[socket.socket] = []
        self._listener = _listen(directory / SOCKET_NAME)

    def set_rank(self, slot: int, rank: int, directory: Path) -> None:
        """Set the rank of the process in `slot` of the console, and the directory of its stack file.

        A restarted process keeps its slot, and its new directory replaces the old one.
        """
        self._ranks[slot] = _Rank(rank, directory)

    def fileno(self) -> int | None:
        """Return the descriptor that is readable when a client connects; None if there is no socket."""
        return self._listener.fileno() if self._listener is not None else None

    def accept_client(self) -> None:
        """Accept a connection of `kfpytorch stacks`, which then waits for the lines of code of the ranks."""
        assert self._listener is not None  # noqa: S101 - its descriptor was readable.
        with contextlib.suppress(OSError):
            self._asking.append(self._listener.accept()[0])

    def has_clients(self) -> bool:
        """True if a `kfpytorch stacks` command waits for the lines of code of the ranks."""
        return bool(self._asking)

    def reply(self, lines: list[str]) -> None:
        """Send `lines` to all waiting clients, and close their connections."""
        for connection in self._asking:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_PATIENCE)
                connection.sendall("".join(f"{line}\n" for line in lines).encode())
        self._asking.clear()

    def clear_stacks(self) -> None:
        """Remove the stacks that the ranks have written, so that only later ones are read."""
        for rank in self._ranks.values():
            (rank.directory / failure_file.STACK_FILE_NAME).write_text("")

    def are_complete(self) -> bool:
        """True if every running rank has written its whole stack."""
        # faulthandler ends with the module that the interpreter runs, or after 100 frames.
        ends = ("in <module>\n", "  ...\n")
        return all(
            failure_file.has_ended(rank.directory) or failure_file.read_stacks(rank.directory).endswith(ends)
            for rank in self._ranks.values()
        )

    def describe(self) -> list[str]:
        """Return lines such as ``rank 1 at hang.py:10 in train``, also about ranks without a position."""
        ranks = sorted(self._ranks.values(), key=lambda rank: rank.number)
        ended = [rank for rank in ranks if failure_file.has_ended(rank.directory)]
        silent = [
            rank for rank in ranks if rank not in ended and not failure_file.read_stacks(rank.directory)
        ]
        found = [rank.read_position() for rank in ranks if rank not in ended and rank not in silent]
        return [
            *rank_groups.list_positions(found),
            *(f"rank {rank.number} has ended" for rank in ended),
            *(f"rank {rank.number} does not answer" for rank in silent),
        ]

    def close(self) -> None:
        """Close the socket and the connections of waiting clients."""
        self.reply([])
        if self._listener is not None:
            self._listener.close()


def _listen(path: Path) -> socket.socket | None:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
    except OSError:  # The path is too long for a socket: the run continues without positions.
        listener.close()
        return None
    listener.listen()
    listener.settimeout(0)
    return listener
