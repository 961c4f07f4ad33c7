"""The scenarios of the comparison: tasks that succeed, and tasks that fail in common ways.

Pods have the statuses that kubelets write. The program of a pod can run as a process of this machine, so that
its outputs are real.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import training_tasks
from rig import kubelet
from rig.api import pods
from rig.fake_nodes import BY_HAND, RUN
from rig.process import run_command, wait_until

_HERE = Path(__file__).parents[1]
_ROLE = "training.kubeflow.org/replica-type"
_LIFE = 2  # Pods that live shorter than the operator can observe are not part of the comparison.
# The duration of two polls: a side that has reported nothing by then reports nothing at all.
_SILENCE = 12


def _play_acts(runs, acts, is_enough):
    """Apply the act of its role to every new pod of these executions, until `is_enough` returns True."""
    started = set()
    with ThreadPoolExecutor() as pool:
        acting = []

        def is_done():
            for run in runs:
                for pod in run.pods():
                    role, uid = pod["metadata"]["labels"][_ROLE], pod["metadata"]["uid"]
                    if uid not in started and pod["spec"].get("nodeName"):
                        started.add(uid)
                        acting.append(pool.submit(acts[role], run.propeller.api, pod))
            return is_enough()

        wait_until(is_done, 120, lambda: str([(run.phases(), run.jobs(), run.pods()) for run in runs]))
    for each in acting:
        each.result()


def runs_later(api, pod):
    """Let the pod run in a later second than that in which its job was created.

    Flyte's own plugin compares the whole seconds of conditions, and otherwise never reports RUNNING.
    """
    time.sleep(_LIFE)
    kubelet.run(api, pod)


def runs_its_program(api, pod):
    """Run the program of the pod, and let the pod end with its exit code."""
    kubelet.run(api, pod)
    container = pod["spec"]["containers"][0]
    here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(_HERE)}
    command = (*container.get("command", ()), *container.get("args", ()))
    ended = run_command(*command, env={**os.environ, **_environment(pod, container), **here}, cwd=_HERE)
    kubelet.end(api, pod, ended.returncode)


def is_killed_for_its_memory(api, pod):
    kubelet.run(api, pod)
    time.sleep(_LIFE)
    kubelet.end(api, pod, 137, "OOMKilled")


def is_preempted(api, pod):
    """Let the pod run for a while, and preempt it: set its DisruptionTarget condition and delete it."""
    kubelet.run(api, pod)
    time.sleep(_LIFE)
    disruption = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
        "lastTransitionTime": kubelet.format_now(),
    }
    kubelet.end(api, pod, 143, conditions=[disruption])
    metadata = pod["metadata"]
    api.delete(pods(metadata["namespace"], metadata["name"]))


def has_no_image(api, pod):
    image = pod["spec"]["containers"][0]["image"]
    waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": not found'}
    kubelet.write(api, pod, {"waiting": waiting}, phase="Pending", startTime=kubelet.format_now())


def _environment(pod, container):
    """Return the environment of a container. Every reference to the downward API gets the pod name."""
    name = pod["metadata"]["name"]
    return {one["name"]: one.get("value", "" if "valueFrom" not in one else name) for one in container["env"]}


def _play(task, acts, *, has_silence=False, **inputs):
    """Return a scenario in which the pods of each role perform an act.

    If `has_silence` is true, wait until our execution has ended, and then abort theirs if it reports no end
    for a while.
    """

    def run(sides):
        pair = sides.start(task, {BY_HAND: "yes"}, **inputs)
        if has_silence:
            _play_acts(pair, acts, _silence(lambda: pair.ours.has_ended))
            return _aborted(pair, lambda: True)
        _play_acts(pair, acts, lambda: all(run.has_ended for run in pair))
        return pair

    return run


def _while_master_runs(act):
    return {"master": kubelet.run, "worker": act}


def _finds_no_node(sides):
    pair = sides.start(training_tasks.asks_too_much, {})
    return _aborted(pair, _silence(lambda: "WAITING_FOR_RESOURCES" in pair.ours.phases()))


def _is_aborted(sides):
    pair = sides.start(training_tasks.says_nothing, {BY_HAND: "yes"})
    acts = dict.fromkeys(("master", "worker"), runs_later)
    _play_acts(pair, acts, lambda: all("RUNNING" in run.phases() for run in pair))
    return _aborted(pair, lambda: True)


SCENARIOS = {
    "it ends well": lambda sides: _wait_for_end(sides.start(training_tasks.says_nothing, {RUN: "5s"})),
    "all replicas raise an error": _play(
        training_tasks.fails, dict.fromkeys(("master", "worker"), runs_its_program), labels=31
    ),
    "one raises, the others wait for it": _play(
        training_tasks.fails, _while_master_runs(runs_its_program), has_silence=True, labels=31
    ),
    "the first attempt raises what is recoverable": _play(
        training_tasks.recovers, {"master": runs_its_program}, value=1
    ),
    "one is killed for its memory": _play(
        training_tasks.says_nothing, _while_master_runs(is_killed_for_its_memory)
    ),
    "one is preempted": _play(training_tasks.says_nothing, _while_master_runs(is_preempted)),
    "the image of one cannot be pulled": _play(
        training_tasks.says_nothing, _while_master_runs(has_no_image), has_silence=True
    ),
    "no node has as many GPUs": _finds_no_node,
    "a user aborts it": _is_aborted,
}
"""The scenarios by name. Each starts two executions and returns when both have ended or are aborted."""


def _silence(after):
    """Return a condition that is true a while after `after` becomes true."""
    began = []

    def is_over():
        if not began and after():
            began.append(time.monotonic())
        return bool(began) and time.monotonic() - began[0] > _SILENCE

    return is_over


def _wait_for_end(pair):
    for run in pair:
        run.wait_until(lambda run=run: run.has_ended)
    return pair


def _aborted(pair, when):
    """Abort each execution that has not ended when `when` becomes true. Wait until its objects are gone."""
    for run in pair:
        run.wait_until(when)
        if not run.has_ended:
            run.abort()
    # A set comprehension evaluates both, where all() would stop at the first False.
    pair.ours.wait_until(lambda: {run.is_gone() for run in pair} == {True})
    return _wait_for_end(pair)
