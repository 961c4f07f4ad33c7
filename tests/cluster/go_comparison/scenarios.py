"""The scenarios of the comparison: tasks that succeed, and tasks that fail in common ways."""

import time
from collections.abc import Callable, Mapping
from typing import Final

import training_tasks
from rig import kubelet
from rig.fake_nodes import BY_HAND, RUN

from go_comparison import pod_acts
from go_comparison.platforms import Pair, Sides
from go_comparison.pod_acts import Act

_HAND: Final = {BY_HAND: "yes"}
# The duration of two polls: a side that has reported nothing by then reports nothing at all.
_SILENCE: Final = 12


def _ends_well(sides: Sides) -> Pair:
    return _wait_for_end(sides.start(training_tasks.says_nothing, {RUN: "5s"}))


def _all_raise(sides: Sides) -> Pair:
    acts = {"master": pod_acts.runs_its_program, "worker": pod_acts.runs_its_program}
    return _played(sides.start(training_tasks.fails, _HAND, labels=31), acts)


def _one_raises(sides: Sides) -> Pair:
    acts = {"master": kubelet.run, "worker": pod_acts.runs_its_program}
    return _played_until_silence(sides.start(training_tasks.fails, _HAND, labels=31), acts)


def _recovers(sides: Sides) -> Pair:
    return _played(
        sides.start(training_tasks.recovers, _HAND, value=1), {"master": pod_acts.runs_its_program}
    )


def _is_killed(sides: Sides) -> Pair:
    acts = {"master": kubelet.run, "worker": pod_acts.is_killed_for_its_memory}
    return _played(sides.start(training_tasks.says_nothing, _HAND), acts)


def _is_preempted(sides: Sides) -> Pair:
    acts = {"master": kubelet.run, "worker": pod_acts.is_preempted}
    return _played(sides.start(training_tasks.says_nothing, _HAND), acts)


def _has_no_image(sides: Sides) -> Pair:
    acts = {"master": kubelet.run, "worker": pod_acts.has_no_image}
    return _played_until_silence(sides.start(training_tasks.says_nothing, _HAND), acts)


def _finds_no_node(sides: Sides) -> Pair:
    pair = sides.start(training_tasks.asks_too_much, {})
    return _aborted(pair, _silence(lambda: "WAITING_FOR_RESOURCES" in pair.ours.phases()))


def _is_aborted(sides: Sides) -> Pair:
    pair = sides.start(training_tasks.says_nothing, {})
    for run in pair:
        run.wait_until(lambda run=run: "RUNNING" in run.phases())
    return _aborted(pair, lambda: True)


SCENARIOS: Final[Mapping[str, Callable[[Sides], Pair]]] = {
    "it ends well": _ends_well,
    "all replicas raise an error": _all_raise,
    "one raises, the others wait for it": _one_raises,
    "the first attempt raises what is recoverable": _recovers,
    "one is killed for its memory": _is_killed,
    "one is preempted": _is_preempted,
    "the image of one cannot be pulled": _has_no_image,
    "no node has as many GPUs": _finds_no_node,
    "a user aborts it": _is_aborted,
}
"""The scenarios by name. Each starts two executions and returns when both have ended or are aborted."""


def _played(pair: Pair, acts: Mapping[str, Act]) -> Pair:
    pod_acts.play(tuple(pair), acts, lambda: all(run.has_ended for run in pair))
    return pair


def _played_until_silence(pair: Pair, acts: Mapping[str, Act]) -> Pair:
    """Wait until our execution has ended, then abort theirs if it reports no end for a while."""
    pod_acts.play(tuple(pair), acts, _silence(lambda: pair.ours.has_ended))
    return _aborted(pair, lambda: True)


def _silence(after: Callable[[], bool]) -> Callable[[], bool]:
    """Return a condition that is true a while after `after` becomes true."""
    began: list[float] = []

    def is_over() -> bool:
        if not began and after():
            began.append(time.monotonic())
        return bool(began) and time.monotonic() - began[0] > _SILENCE

    return is_over


def _wait_for_end(pair: Pair) -> Pair:
    for run in pair:
        run.wait_until(lambda run=run: run.has_ended)
    return pair


def _aborted(pair: Pair, when: Callable[[], bool]) -> Pair:
    """Abort each execution that has not ended when `when` becomes true. Wait until its objects are gone."""
    for run in pair:
        run.wait_until(when)
        if not run.has_ended:
            run.abort()
    # A set comprehension evaluates both, where all() would stop at the first False.
    pair.ours.wait_until(lambda: {run.is_gone() for run in pair} == {True})
    return _wait_for_end(pair)
