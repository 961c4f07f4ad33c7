"""Describe ranks and the lines of code that they execute, and group ranks with the same description."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from flytekitplugins.kfpytorch.worker import verdict
from flytekitplugins.kfpytorch.worker.user_frames import format_frame
from kfpytorch_common.causes import Failure

MAX_GROUPS = 4
_MOST_RANKS = 8
# One rank sends while its peer receives, so two ranks may correctly be in different ones of these.
_POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})


def format_position(failure: Failure, otherwise: str = "") -> str:
    """Return the line of a failure as ``at train.py:9 in train``; `otherwise` if it has no stack frames."""
    return f"at {format_frame(failure.frames[-1])}" if failure.frames else otherwise


def format_place(failure: Failure) -> str:
    """Return collective and line of a failure, as far as known: ``in all_reduce at train.py:9 in train``."""
    collective = f"in {failure.collective}" if failure.collective else ""
    return " ".join(filter(None, [collective, format_position(failure)]))


def format_waiting(failure: Failure) -> str:
    """Return where a rank waited, as far as known: ``waited in all_reduce at train.py:9 in train``."""
    return f"waited {format_place(failure)}".rstrip()


def list_ranks(failures: Iterable[Failure]) -> list[int]:
    """Return the ranks of `failures` in ascending order. A failure without a known rank is left out."""
    return sorted(each.rank for each in failures if each.rank is not None)


def format_ranks(ranks: Sequence[int]) -> str:
    """Return `ranks` as text, such as ``rank 3`` or ``ranks 0, 2-7``."""
    runs = [*_list_runs(ranks)]
    listed = ", ".join(runs[:_MOST_RANKS]) + (" …" if len(runs) > _MOST_RANKS else "")
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


def _list_runs(ranks: Sequence[int]) -> Iterator[str]:
    """Yield ``2-7`` for three or more consecutive ranks, and every other rank by itself."""
    for _, run in itertools.groupby(enumerate(sorted(ranks)), lambda item: item[1] - item[0]):
        members = [rank for _, rank in run]
        if len(members) > 2:
            yield f"{members[0]}-{members[-1]}"
        else:
            yield from map(str, members)


def group_ranks(failures: Iterable[Failure], describe: Callable[[Failure], str]) -> dict[str, list[int]]:
    """Group the ranks of `failures` by the text that `describe` returns for a failure.

    The keys of the result are the texts, in the order of `failures`. A failure without a rank is left out.
    """
    groups: dict[str, list[int]] = {}
    for failure in failures:
        if failure.rank is not None:
            groups.setdefault(describe(failure), []).append(failure.rank)
    return groups


def list_groups(failures: Iterable[Failure], describe: Callable[[Failure], str]) -> list[str]:
    """Return one line per group of ranks with the same description: ``ranks 0, 1 waited in all_reduce``.

    `describe` returns the description of a failure: the part of the line after the ranks.
    """
    return [f"{format_ranks(ranks)} {text}" for text, ranks in group_ranks(failures, describe).items()]


def list_positions(stopped: Sequence[Failure]) -> list[str]:
    """Return one text for each line of code at which ranks stopped: ``ranks 0, 1 at train.py:9 in train``.

    If ranks were in different collectives, such as all_reduce and broadcast, the last text lists these.
    """
    return [*list_groups(stopped, _format_stop), *_compare_collectives(stopped)]


def _format_stop(stopped: Failure) -> str:
    place = format_position(stopped, "at an unknown place")
    return f"{place}, waiting in {stopped.collective}" if stopped.collective else place


def describe_hang(analysis: verdict.FailureAnalysis) -> list[str]:
    """Return a line with the ranks in each collective; an empty list if all waited in the same collective.

    The list is also empty if the root cause is not a wait for peers, or if ranks ended early.
    """
    if analysis.early or not verdict.is_waiting(analysis.cause):
        return []
    waiting = [each for each in (analysis.cause, *analysis.others) if verdict.is_waiting(each)]
    return [f"  {line}" for line in _compare_collectives(waiting)]


def _compare_collectives(ranks: Sequence[Failure]) -> list[str]:
    inside = [each for each in ranks if each.frames and each.collective not in {"", *_POINT_TO_POINT}]
    if len({each.collective for each in inside}) < 2:
        return []
    listed = list_groups(inside, format_place)
    return ["ranks are in different collectives: " + ", ".join(listed[:MAX_GROUPS])]
