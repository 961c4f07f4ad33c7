"""Streams of job changes for clients that watch jobs."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from backend_plugin.core.judging.verdict import Phase
from backend_plugin.core.observed import Job
from backend_plugin.shell.cache import Cache
from backend_plugin.shell.cached_job import CachedJob, Key
from kfpytorch_idl.v1 import job_service_pb2 as wire

# Seconds between batches; changes within this time are merged, as users read no faster.
_PAUSE: Final = 0.2
# Seconds until a job is encoded again, because time alone can change its phase.
_RECHECK_SECONDS: Final = 5.0
# Jobs that are encoded before other tasks run: this delays a call from Flyte by a few milliseconds.
_AT_ONCE: Final = 20
ENDS: Final = tuple(phase.value for phase in Phase if phase.is_terminal)

JobEncoder: TypeAlias = Callable[[CachedJob], wire.Job]
Item = TypeVar("Item")
Answer = TypeVar("Answer")


async def iter_batches(
    turn: asyncio.Lock, items: Sequence[Item], encode: Callable[[Item], Answer]
) -> AsyncGenerator[list[Answer], None]:
    """Yield the results of `encode` for `items` in small batches.

    `turn` is a lock that is held for each batch. The batches of callers with the same lock alternate.
    """
    for begin in range(0, len(items), _AT_ONCE):
        async with turn:
            results = [encode(item) for item in items[begin : begin + _AT_ONCE]]
            await asyncio.sleep(0)
        yield results


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWatch:
    """The jobs of a cache that one client watches."""

    cache: Cache
    belongs: Callable[[CachedJob], bool]
    """Returns True for each job that the client requested."""
    encode: JobEncoder
    """Encodes one job as a gRPC message."""
    active_only: bool = False
    """Leave out jobs that had ended before the watch started."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A lock that all watches share and hold for each batch of jobs, so that their batches alternate."""


async def watch_jobs(watched: JobWatch) -> AsyncGenerator[wire.JobChange, None]:
    """Yield each job, the oldest first, then every change; never ends."""
    changed: set[Key] = set()
    sent: dict[Key, wire.Job] = {}
    stop_listening = watched.cache.listen(lambda entry: changed.add(entry.key))
    clock = asyncio.create_task(_mark_active_changed(changed, sent))
    try:
        present = filter(watched.belongs, watched.cache)
        keys = [entry.key for entry in sorted(present, key=get_age_key)]
        while True:
            async for changes in iter_batches(
                watched.turn, keys, lambda key: _find_change(watched, key, sent)
            ):
                for change in changes:
                    if change is not None:
                        yield change
            keys = await _wait_for_changes(changed)
    finally:
        stop_listening()
        clock.cancel()


async def watch_one_job(
    entry: CachedJob, cache: Cache, encode: JobEncoder
) -> AsyncGenerator[wire.JobChange, None]:
    """Yield a job whenever it changes, until it has ended or is gone."""
    # A new job of the same name has a new entry. The lock is not shared: one job delays no other calls.
    watched = JobWatch(cache=cache, belongs=lambda other: other is entry, encode=encode)
    async with aclosing(watch_jobs(watched)) as changes:
        async for change in changes:
            yield change
            if change.HasField("gone") or change.job.verdict.phase in ENDS:
                return


def _find_change(watched: JobWatch, key: Key, sent: dict[Key, wire.Job]) -> wire.JobChange | None:
    entry, last = watched.cache.get(key), sent.get(key)
    if entry is None or not watched.belongs(entry):
        sent.pop(key, None)
        namespace, name = key
        return None if last is None else wire.JobChange(gone=wire.Job(namespace=namespace, name=name))
    job = watched.encode(entry)
    is_omitted = last is None and watched.active_only and job.verdict.phase in ENDS
    if is_omitted or job == last:
        return None
    sent[key] = job
    return wire.JobChange(job=job)


async def _mark_active_changed(changed: set[Key], sent: dict[Key, wire.Job]) -> None:
    """Periodically add the keys of `sent` jobs to `changed`, because time alone can change their phase.

    Jobs that have ended are left out.
    """
    while True:
        await asyncio.sleep(_RECHECK_SECONDS)
        changed |= {key for key, job in sent.items() if job.verdict.phase not in ENDS}


async def _wait_for_changes(changed: set[Key]) -> list[Key]:
    await asyncio.sleep(_PAUSE)
    while not changed:
        await asyncio.sleep(_PAUSE)
    keys = sorted(changed)
    changed.clear()
    return keys


def get_age_key(entry: CachedJob | Job) -> tuple[str, str]:
    """Return the creation time and the name of a job as a sort key."""
    job = entry if isinstance(entry, Job) else entry.job
    return (job.created.isoformat() if job and job.created else "", entry.name)
