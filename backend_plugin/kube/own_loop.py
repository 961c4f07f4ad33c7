"""What starts processes and may hang, in a thread and an event loop of its own.

Lives here: a time for it, and that what it has started ends with it. Does not: what it does.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")

_LOOK: Final = 0.01
_LOOKS: Final = 300
"""Who may not be killed, as another user's, is not waited for."""


class _Loop(asyncio.SelectorEventLoop):
    """Knows the processes that are started on it, which whoever starts them forgets when he is given up."""

    def __init__(self) -> None:
        super().__init__()
        self._started: list[asyncio.Task[tuple[asyncio.SubprocessTransport, Any]]] = []

    async def subprocess_exec(self, *arguments: Any, **said: Any) -> Any:
        """See `asyncio.AbstractEventLoop.subprocess_exec`. A start that was begun comes to its end.

        One that is cancelled between two of its pipes would wait for them for ever, as of Python 3.11.
        """
        start = self.create_task(super().subprocess_exec(*arguments, **said))
        self._started.append(start)
        return await asyncio.shield(start)

    async def end_processes(self) -> None:
        """Kill those that are left, with all that they have started, and see them out."""
        for start in await asyncio.gather(*self._started, return_exceptions=True):
            if not isinstance(start, BaseException):
                await _end(start[0])


async def _end(transport: asyncio.SubprocessTransport) -> None:
    if transport.get_returncode() is None:
        _kill(transport.get_pid())
    for _ in range(_LOOKS):
        if transport.get_returncode() is not None:
            break
        await asyncio.sleep(_LOOK)
    transport.close()


async def within(seconds: float, do: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `do` gives; raises `asyncio.TimeoutError` after so many seconds, and what it raises."""
    loop = _Loop()
    task = loop.create_task(asyncio.wait_for(do(), seconds))
    done = asyncio.get_running_loop().run_in_executor(None, _run, loop, task)
    # Nobody may be left to hear of it.
    done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        with contextlib.suppress(RuntimeError):  # It has ended just now.
            loop.call_soon_threadsafe(task.cancel)
        raise


def _run(loop: _Loop, task: "asyncio.Task[T]") -> T:
    try:
        return loop.run_until_complete(task)
    except asyncio.CancelledError:
        raise asyncio.TimeoutError from None
    finally:
        loop.run_until_complete(loop.end_processes())
        loop.close()


def _kill(pid: int) -> None:
    import psutil

    for process in [*_family(pid)]:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _family(pid: int) -> Iterator[Any]:
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        yield from process.children(recursive=True)
        yield process
