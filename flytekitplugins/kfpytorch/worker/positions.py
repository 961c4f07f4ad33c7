"""Report through a socket the position of each rank of a run: the line of code that the rank executes."""

import contextlib
import socket
from pathlib import Path
from typing import Final

from flytekitplugins.kfpytorch.worker import failure_file, rank_groups
from kfpytorch_common.causes import Failure
from kfpytorch_common.positions import SOCKET_NAME

# Seconds after which a client that does not read its reply is disconnected.
_PATIENCE: Final = 1.0


class RankPositions:
    """The ranks of a run, and the socket that sends `kfpytorch stacks` the lines of code they execute."""

    def __init__(self, directory: Path) -> None:
        self._ranks: dict[int, tuple[int, Path]] = {}
        """The rank and the directory of its stack file, by the number of the output slot."""
        self._clients: list[socket.socket] = []
        self._listener = _listen(directory / SOCKET_NAME)

    def set_rank(self, slot: int, rank: int, directory: Path) -> None:
        """Set the rank of the process with the output slot `slot`, and the directory of its stack file.

        A restarted process keeps its slot, and its new directory replaces the old one.
        """
        self._ranks[slot] = rank, directory

    def fileno(self) -> int | None:
        """Return the socket's descriptor, which is readable when a client connects; None without a socket."""
        return self._listener.fileno() if self._listener is not None else None

    def accept_client(self) -> None:
        """Accept a connection of `kfpytorch stacks`, which then waits until `reply` sends the lines."""
        assert self._listener is not None  # noqa: S101 - its descriptor was readable.
        with contextlib.suppress(OSError):
            self._clients.append(self._listener.accept()[0])

    def has_clients(self) -> bool:
        """True if a `kfpytorch stacks` command is connected and waits for a reply."""
        return bool(self._clients)

    def reply(self, lines: list[str]) -> None:
        """Send `lines` to all waiting `kfpytorch stacks` commands, and close their connections."""
        for connection in self._clients:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_PATIENCE)
                connection.sendall("".join(f"{line}\n" for line in lines).encode())
        self._clients.clear()

    def clear_stacks(self) -> None:
        """Empty the stack files of the ranks, so that later reads find only new stacks."""
        for _, directory in self._ranks.values():
            (directory / failure_file.STACK_FILE_NAME).write_text("")

    def are_complete(self) -> bool:
        """True if every running rank has written its whole stack."""
        # The last line of a whole stack is the main module, or "..." if the stack has more than 100 frames.
        ends = ("in <module>\n", "  ...\n")
        return all(
            failure_file.has_ended(directory) or failure_file.read_stacks(directory).endswith(ends)
            for _, directory in self._ranks.values()
        )

    def describe(self) -> list[str]:
        """Return lines with the line of code of each rank, such as ``rank 1 at hang.py:10 in train``.

        After these follow lines about ranks that have ended, and about ranks that wrote no stack.
        """
        found, ended, silent = [], [], []
        for rank, directory in sorted(self._ranks.values()):
            if failure_file.has_ended(directory):
                ended.append(f"rank {rank} has ended")
            elif failure_file.read_stacks(directory):
                position = failure_file.read_position(directory)
                found.append(Failure(rank=rank, replica="", exit_code=0, time_ns=0, **position))
            else:
                silent.append(f"rank {rank} does not answer")
        return [*rank_groups.list_positions(found), *ended, *silent]

    def close(self) -> None:
        """Close the socket and the connections of waiting clients."""
        self.reply([])
        if self._listener is not None:
            self._listener.close()


def _listen(path: Path) -> socket.socket | None:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
    except OSError:  # The path may be too long for a socket. The run then continues without a socket.
        listener.close()
        return None
    listener.listen()
    listener.settimeout(0)
    return listener
