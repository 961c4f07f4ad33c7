"""Where many are asked of a cluster at once, what follows their answers is done together, not one by one.

What follows an answer is short, and done by itself it costs most in being woken for it and in what has left
the processor's caches meanwhile; and whoever is told of his answer asks the next question, alone again.

Lives here: which answer waits for which others. Does not: asking, and what has to be done at once.
"""

import asyncio
from typing import Final

_FEW: Final = 4
"""Others without an answer: where there are fewer, hardly one of them would come while this one waits."""
_SHARE: Final = 1 / 3
"""Of the time that an answer took, for which it waits at most: who asks a cluster that has nothing else to do
is to lose little. Half of it saved hardly more, a quarter somewhat less (decision 0044)."""
_LONGEST: Final = 0.05
"""Seconds that it waits at most."""


class Coalescing:
    """Questions of one kind to one cluster."""

    def __init__(self, share: float = _SHARE, longest: float = _LONGEST) -> None:
        """An answer waits at most for this `share` of the time that it took, and for `longest` seconds."""
        self._share, self._longest = share, longest
        self._unanswered = 0
        self._wait: asyncio.Event | None = None
        """Of those who were answered since the last of them went on; None where nobody waits."""
        self._timer: asyncio.TimerHandle | None = None

    def question(self) -> "Question":
        """One more; it is under way within its context, and `Question.turn` is to be awaited after that."""
        return Question(self)

    def begin(self) -> None:
        """One is asked."""
        self._unanswered += 1

    def end(self) -> None:
        """It is answered, or given up."""
        self._unanswered -= 1
        if not self._unanswered:
            self._go_on()

    async def turn(self, took: float) -> None:
        """Returns when an answer that took so many seconds may go on."""
        loop = asyncio.get_running_loop()
        if self._wait is None:
            if self._unanswered < _FEW:
                return
            self._wait = asyncio.Event()
        until = loop.time() + min(self._longest, self._share * took)
        # All go on with the first of them who has waited long enough.
        if self._timer is None or until < self._timer.when():
            self._stop()
            self._timer = loop.call_at(until, self._go_on)
        await self._wait.wait()

    def _go_on(self) -> None:
        if self._wait is not None:
            self._wait.set()
            self._wait = None
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Question:
    """One question, under way within its context."""

    __slots__ = ("_among", "_asked")

    def __init__(self, among: Coalescing) -> None:
        self._among = among
        self._asked = 0.0

    def __enter__(self) -> "Question":
        self._asked = asyncio.get_running_loop().time()
        self._among.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._among.end()

    async def turn(self) -> None:
        """Returns soon after the answer, when what follows it is to be done."""
        await self._among.turn(asyncio.get_running_loop().time() - self._asked)
