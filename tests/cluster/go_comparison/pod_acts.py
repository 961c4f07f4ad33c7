"""The acts of pods, with statuses as kubelets write them.

The program of a pod can run as a process of this machine, so that its outputs in the store are real.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias

from rig import kubelet
from rig.api import Api, Manifest, pods
from rig.process import wait_until

from go_comparison.platforms import Run

Act: TypeAlias = Callable[[Api, Manifest], None]
_HERE: Final = Path(__file__).parents[1]
_ROLE: Final = "training.kubeflow.org/replica-type"
# Pods that live shorter than the operator can observe are not part of the comparison.
_LIFE: Final = 2
_PATIENCE: Final = 120


def play(runs: Iterable[Run], acts: Mapping[str, Act], is_enough: Callable[[], bool]) -> None:
    """Apply the act of its role to every new pod of these executions, until `is_enough` returns True."""
    started: set[str] = set()
    with ThreadPoolExecutor() as pool:
        acting: list[Future[None]] = []

        def is_done() -> bool:
            for run in runs:
                for pod in run.pods():
                    role, uid = pod["metadata"]["labels"][_ROLE], pod["metadata"]["uid"]
                    if uid not in started and pod["spec"].get("nodeName"):
                        started.add(uid)
                        acting.append(pool.submit(acts[role], run.propeller.api, pod))
            return is_enough()

        wait_until(is_done, _PATIENCE, lambda: str([(run.phases(), run.jobs(), run.pods()) for run in runs]))
    for each in acting:
        each.result()


def runs_later(api: Api, pod: Manifest) -> None:
    """Let the pod run in a later second than that in which its job was created.

    Flyte's own plugin compares the whole seconds of conditions, and otherwise never reports RUNNING.
    """
    time.sleep(_LIFE)
    kubelet.run(api, pod)


def runs_its_program(api: Api, pod: Manifest) -> None:
    """Run the program of the pod, and let the pod end with its exit code."""
    kubelet.run(api, pod)
    container = pod["spec"]["containers"][0]
    here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(_HERE)}
    ended = subprocess.run(
        [*container.get("command", ()), *container.get("args", ())],
        env={**os.environ, **_environment(pod, container), **here},
        cwd=_HERE,
        capture_output=True,
        check=False,
    )
    kubelet.end(api, pod, ended.returncode)


def is_killed_for_its_memory(api: Api, pod: Manifest) -> None:
    """Let the pod run for a while, and let it end as OOMKilled."""
    kubelet.run(api, pod)
    time.sleep(_LIFE)
    kubelet.end(api, pod, 137, "OOMKilled")


def is_preempted(api: Api, pod: Manifest) -> None:
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


def has_no_image(api: Api, pod: Manifest) -> None:
    """Let the pod wait in ImagePullBackOff."""
    image = pod["spec"]["containers"][0]["image"]
    waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": not found'}
    kubelet.write(api, pod, {"waiting": waiting}, phase="Pending", startTime=kubelet.format_now())


def _environment(pod: Manifest, container: Manifest) -> Mapping[str, str]:
    """Return the environment of a container. Every reference to the downward API gets the pod name."""
    name = pod["metadata"]["name"]
    return {
        each["name"]: each.get("value", "" if "valueFrom" not in each else name) for each in container["env"]
    }
