"""Background operations: work that runs outside requests and is retried after transient errors."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from backend_plugin.core.errors import RequestRejected
from backend_plugin.shell.cluster import ClusterUnavailable
from backend_plugin.shell.logging_setup import add_log_fields
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.together import timeout

log = logging.getLogger(__name__)

Order: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""The function that does the work of an operation; it is called again for each retry."""

Key: TypeAlias = tuple[object, ...]
"""The key of an operation: its kind, then the values that identify its target, such as a job's name."""

DELETE_JOB: Final = "delete_job"
"""The kind of the operations that delete jobs. A deletion that the cluster has not accepted is not recorded
in the cluster, so no other server repeats the deletion."""
FIRST_PAUSE: Final = 0.2
"""Seconds before the first retry. The pause doubles before each further retry, up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Final = 30.0
_LAST_PAUSE: Final = 1.0
"""The maximum pause in seconds during the shutdown, so that every operation is retried before its end."""


class BackgroundOperations:
    """Runs operations in the background, with retries, and waits for them when the server shuts down."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._cancelled: set[asyncio.Task[None]] = set()
        self._interrupted: dict[Key, tuple[Order, Mapping[str, object]]] = {}
        self._errors: dict[asyncio.Task[None] | None, ClusterUnavailable] = {}
        self._settling = asyncio.Event()

    def find_error(self, order: asyncio.Task[None]) -> ClusterUnavailable | None:
        """Return the last error of the running operation with the task `order`; None if no try has failed."""
        return self._errors.get(order)

    def __len__(self) -> int:
        return len(self._tasks)

    def count_running(self, what: str) -> int:
        """Return the number of running operations of one kind; safe to call from another thread."""
        return sum(1 for key in list(self._tasks) if key[0] == what)

    def submit(self, key: Key, order: Order, fields: Mapping[str, object]) -> asyncio.Task[None]:
        """Start an operation, unless one with this `key` runs already; return the operation's asyncio task.

        `order` does the work of a new operation, and is called again for each retry. `fields` are added to
        its log lines.
        """
        task = self._tasks.get(key)
        if task is None:
            with add_log_fields(**fields):
                task = self._tasks[key] = asyncio.create_task(self._run_with_retries(key, order))
            task.add_done_callback(lambda done: self._on_done(key, done, order, fields))
        return task

    def cancel(self, key: Key) -> None:
        """Cancel an operation whose result is no longer needed; `resubmit_deletions` does not restart it."""
        task = self._tasks.pop(key, None)
        if task is not None:
            self._cancelled.add(task)
            task.cancel()

    async def drain(self, seconds: float, deletion_seconds: float = 0.0) -> None:
        """Wait for the running operations, and cancel those that still run at their time limit.

        If this call itself is cancelled, cancel all operations immediately.

        Args:
            seconds: The time limit in seconds.
            deletion_seconds: The time limit of job deletions in seconds, if it is longer than `seconds`.
        """
        self._settling.set()
        try:
            await _wait_until_done([*self._tasks.values()], seconds)
            deletions = [task for key, task in self._tasks.items() if key[0] == DELETE_JOB]
            await _wait_until_done(deletions, deletion_seconds - seconds)
        finally:
            self._log_cancelled(await self._cancel_all())

    async def _cancel_all(self) -> Sequence[Key]:
        """Cancel all running operations; return the keys of those that the cancellation ended."""
        left = {**self._tasks}
        for task in left.values():
            task.cancel()
        await asyncio.gather(*left.values(), *self._cancelled, return_exceptions=True)
        await asyncio.sleep(0)  # Let the done callbacks run.
        return [key for key, task in left.items() if task.cancelled()]

    def _log_cancelled(self, given_up: Sequence[Key]) -> None:
        if given_up:
            counts = Counter(str(key[0]) for key in given_up)
            kinds = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            log.info("the server stops before %d operations are complete: %s", len(given_up), kinds)
        for key in given_up:
            if key[0] == DELETE_JOB:
                why = "the operation is not complete, and no other server repeats it: %s"
                log.warning(why, DELETE_JOB, extra=self._interrupted[key][1])

    async def resubmit_deletions(self, seconds: float) -> None:
        """Restart the job deletions that were interrupted, for example by the end of the event loop.

        First cancel all operations that still run, so that the running deletions are restarted, too. After
        the restart, wait for the deletions for up to `seconds`.
        """
        await self._cancel_all()
        for key, (order, fields) in [*self._interrupted.items()]:
            if key[0] == DELETE_JOB:
                self.submit(key, order, fields)
        await self.drain(seconds)

    async def _run_with_retries(self, key: Key, order: Order) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await order()
            except ClusterUnavailable as error:
                self._errors[asyncio.current_task()] = error
                self.metrics.cluster_errors.add(str(key[0]), "ClusterUnavailable")
                log.warning("retrying in %.1f s: %s", pause, error)
                await self._sleep_before_retry(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except RequestRejected as refused:
                self.metrics.cluster_errors.add(str(key[0]), refused.reason)
                log.error(  # noqa: TRY400 - no traceback.
                    "the cluster rejected the request (%d %s): %s", refused.code, refused.reason, refused
                )
                return
            else:
                return

    async def _sleep_before_retry(self, seconds: float) -> None:
        if self._settling.is_set():
            await asyncio.sleep(min(seconds, _LAST_PAUSE))
            return
        with suppress(asyncio.TimeoutError):
            async with timeout(seconds):
                await self._settling.wait()

    def _on_done(
        self, key: Key, task: asyncio.Task[None], order: Order, fields: Mapping[str, object]
    ) -> None:
        is_needed = self._tasks.get(key) is task
        if is_needed:
            del self._tasks[key]
        self._cancelled.discard(task)
        self._errors.pop(task, None)
        if task.cancelled():
            if is_needed:
                self._interrupted[key] = order, fields
        elif (error := task.exception()) is not None:
            log.error("internal error: an operation stopped", exc_info=error)


async def _wait_until_done(tasks: Sequence["asyncio.Task[None]"], seconds: float) -> None:
    if tasks and seconds > 0:
        await asyncio.wait(tasks, timeout=seconds)
