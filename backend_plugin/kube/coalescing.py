"""Where the API server has many questions before it, its answers are taken up together, not one by one.

What follows an answer is short, and done by itself it costs most in being woken for it and in what has left
the processor's caches meanwhile; and whoever is told of his answer asks the next question, alone again.

Lives here: which answer waits for which others. Does not: asking.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

T = TypeVar("T")

_FEW: Final = 4
"""Others without an answer: where there are fewer, hardly one of them would come while this one waits."""
_SHARE: Final = 1 / 3
"""Of the time that an answer took, for which it waits at most: who asks before an API server that has nothing
else to do is to lose little. Half of it saved hardly more, a quarter somewhat less (decision 0044)."""
_LONGEST: Final = 0.05
"""Seconds that it waits at most."""


class Coalescing:
    """Questions of one kind to one API server."""

    def __init__(self, share: float = _SHARE, longest: float = _LONGEST) -> None:
        """An answer waits at most for this `share` of the time that it took, and for `longest` seconds."""
        self._share, self._longest = share, longest
        self._unanswered = 0
        self._wait: asyncio.Event | None = None
        """Of those who were answered since the last of them went on; None where nobody waits."""
        self._timer: asyncio.TimerHandle | None = None

    async def answered(self, question: Awaitable[T]) -> T:
        """The answer, soon after it has come; what `question` raises is raised at once."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        self._unanswered += 1
        try:
            answer = await question
        finally:
            self._unanswered -= 1
            if not self._unanswered:
                self._go_on()
        if self._wait is None:
            if self._unanswered < _FEW:
                return answer
            self._wait = asyncio.Event()
            seconds = min(self._longest, self._share * (loop.time() - asked))
            self._timer = loop.call_later(seconds, self._go_on)
        await self._wait.wait()
        return answer

    def _go_on(self) -> None:
        if self._wait is not None and self._timer is not None:
            self._timer.cancel()
            self._wait.set()
            self._wait = self._timer = None
