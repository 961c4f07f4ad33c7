"""What comes of a watch stays in its socket until it is wanted, there is much, or it has lain long enough.

An API server sends every change in a packet of its own, and being woken for each is most of what it costs.

Lives here: when each watch is read. Does not: what is read.
"""

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.shell.timeouts import timeout

FRESH: Final = 0.08
"""Seconds between two looks for whoever asks; what he is told is no older."""
_MUCH: Final = 1 << 21
"""Bytes in a socket that are read though nobody asks, or fewer where the system has less room: an API server
leaves who takes nothing."""
_WAIT: Final = 0.05
"""Seconds that whoever asks waits at most, where there is much to read or half a record of TLS has come."""


class Held:
    """One watch. It is held between `hold` and the next `release`, or until its time is over."""

    def __init__(self, of: socket.socket | None, seconds: float) -> None:
        """`of` is its connection, None where all of it has come; it is held for so many seconds at most."""
        self._socket = of
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._is_read = asyncio.Event()

    def hold(self) -> None:
        """All that had come is read."""
        self._is_read.set()
        self._wake_at(_MUCH)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self.release)

    def release(self) -> None:
        """Read what lies there, or else what comes next, at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_read.clear()
        self._wake_at(1)

    async def until_read(self) -> None:
        """Returns once all that lay there when it was released last is read."""
        await self._is_read.wait()

    def end(self) -> None:
        """Others may use its connection."""
        self.release()
        self._is_read.set()

    @property
    def is_behind(self) -> bool:
        """Whether something lies there."""
        if self._socket is None or (file := self._socket.fileno()) < 0:
            return False
        (unread,) = struct.unpack("i", fcntl.ioctl(file, termios.FIONREAD, bytes(4)))
        return bool(unread)

    def _wake_at(self, size: int) -> None:
        """Be told of so many bytes and more, of the end, and of nothing less (socket(7))."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # It is closed, or this system has no such thing.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


class Holding:
    """All watches of one cluster, and whoever wants to know what they say."""

    def __init__(self, seconds: float) -> None:
        """What nobody asks for may lie unread for so many seconds."""
        self._seconds = seconds
        self._held: set[Held] = set()
        self._looked = float("-inf")
        self._look: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def held(self, of: socket.socket | None, *, leads: bool) -> Iterator[Held]:
        """One watch more, as long as the context; what it says is not left lying for long if it `leads`."""
        held = Held(of, min(FRESH, self._seconds) if leads else self._seconds)
        self._held.add(held)
        try:
            yield held
        finally:
            self._held.discard(held)
            held.end()

    def hurry(self) -> None:
        """Read what lies in all of them, or what comes to each next."""
        for each in self._held:
            each.release()

    async def catch_up(self) -> None:
        """Returns once what had come 80 ms ago is read, and after a moment in any case."""
        if self._look is None:
            now = asyncio.get_running_loop().time()
            if now - self._looked < FRESH:
                return
            self._looked = now
            behind = [each for each in self._held if each.is_behind]
            for each in behind:
                each.release()
            # Also where nothing lies there: what has left its socket in this turn is passed on in the next.
            self._look = asyncio.create_task(_until_read(behind))
            self._look.add_done_callback(self._settle)
        await asyncio.wait([self._look])

    def _settle(self, _: "asyncio.Task[None]") -> None:
        self._look = None


async def _until_read(behind: Sequence[Held]) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        async with timeout(_WAIT):
            for each in behind:
                await each.until_read()
