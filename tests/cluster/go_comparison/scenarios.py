"""The scenarios of the comparison: tasks that succeed, and tasks that fail in common ways."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import training_tasks
from flytekit.core.base_task import PythonTask
from rig import kubelet
from rig.fake_nodes import BY_HAND, RUN

from go_comparison import pod_acts
from go_comparison.platforms import Pair, Sides
from go_comparison.pod_acts import Act

# The duration of two polls: a side that has reported nothing by then reports nothing at all.
_SILENCE: Final = 12


def _play(
    task: PythonTask, acts: Mapping[str, Act], *, has_silence: bool = False, **inputs: Any
) -> Callable[[Sides], Pair]:
    """Return a scenario in which the pods of each role perform an act.

    If `has_silence` is true, wait until our execution has ended, and then abort theirs if it reports no end
    for a while.
    """

    def run(sides: Sides) -> Pair:
        pair = sides.start(task, {BY_HAND: "yes"}, **inputs)
        if has_silence:
            pod_acts.play(pair, acts, _silence(lambda: pair.ours.has_ended))
            return _aborted(pair, lambda: True)
        pod_acts.play(pair, acts, lambda: all(run.has_ended for run in pair))
        return pair

    return run


def _while_master_runs(act: Act) -> Mapping[str, Act]:
    return {"master": kubelet.run, "worker": act}


def _finds_no_node(sides: Sides) -> Pair:
    pair = sides.start(training_tasks.asks_too_much, {})
    return _aborted(pair, _silence(lambda: "WAITING_FOR_RESOURCES" in pair.ours.phases()))


def _is_aborted(sides: Sides) -> Pair:
    pair = sides.start(training_tasks.says_nothing, {BY_HAND: "yes"})
    acts = dict.fromkeys(("master", "worker"), pod_acts.runs_later)
    pod_acts.play(pair, acts, lambda: all("RUNNING" in run.phases() for run in pair))
    return _aborted(pair, lambda: True)


SCENARIOS: Final[Mapping[str, Callable[[Sides], Pair]]] = {
    "it ends well": lambda sides: _wait_for_end(sides.start(training_tasks.says_nothing, {RUN: "5s"})),
    "all replicas raise an error": _play(
        training_tasks.fails, dict.fromkeys(("master", "worker"), pod_acts.runs_its_program), labels=31
    ),
    "one raises, the others wait for it": _play(
        training_tasks.fails, _while_master_runs(pod_acts.runs_its_program), has_silence=True, labels=31
    ),
    "the first attempt raises what is recoverable": _play(
        training_tasks.recovers, {"master": pod_acts.runs_its_program}, value=1
    ),
    "one is killed for its memory": _play(
        training_tasks.says_nothing, _while_master_runs(pod_acts.is_killed_for_its_memory)
    ),
    "one is preempted": _play(training_tasks.says_nothing, _while_master_runs(pod_acts.is_preempted)),
    "the image of one cannot be pulled": _play(
        training_tasks.says_nothing, _while_master_runs(pod_acts.has_no_image), has_silence=True
    ),
    "no node has as many GPUs": _finds_no_node,
    "a user aborts it": _is_aborted,
}
"""The scenarios by name. Each starts two executions and returns when both have ended or are aborted."""


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
