"""Measure for how many jobs per second one core computes the Flyte phase, with `judge`.

``python benchmarks/scripts/judge_rate.py JOBS [KIND]``: the jobs have four pods and are in various states.
KIND is ``PyTorchJob``, the default, or ``TrainJob``.
"""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.observed import Observed
from backend_plugin.core.pipeline import judge
from backend_plugin.core.settings.judging import LogLinkSettings, LogTemplate
from benchmarks.scripts.job_kinds import DEFAULT, KINDS, JobKind
from benchmarks.scripts.rate import BATCH, measure_rate

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOW = START + timedelta(hours=1)
RULES = JudgingContext(
    logs=LogLinkSettings(
        templates=(LogTemplate(name="Logs", template_uris=("https://logs/{{ .namespace }}/{{ .podName }}",)),)
    )
)


def format_time(seconds: int) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def build_pod(
    job: str, replica: tuple[str, int], phase: str, seconds: int, kind: JobKind = DEFAULT
) -> dict[str, Any]:
    state: dict[str, Any] = {"running": {"startedAt": format_time(seconds + 9)}}
    if phase == "Pending":
        state = {"waiting": {"reason": "ContainerCreating"}}
    if phase in ("Succeeded", "Failed"):
        code = 0 if phase == "Succeeded" else 1
        state = {"terminated": {"exitCode": code, "finishedAt": format_time(seconds + 60)}}
    return {
        "metadata": {
            "name": kind.build_pod_name(job, *replica),
            "creationTimestamp": format_time(seconds),
            "labels": kind.build_labels(job, *replica),
            "ownerReferences": [{"uid": job}],
        },
        "spec": {"nodeName": f"node-{seconds % 7}"},
        "status": {
            "phase": phase,
            "startTime": format_time(seconds + 1),
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(seconds + 1)},
                {
                    "type": "Ready",
                    "status": str(phase == "Running"),
                    "lastTransitionTime": format_time(seconds + 9),
                },
            ],
            "containerStatuses": [
                {"name": kind.container, "image": "train:1", "restartCount": 0, "state": state}
            ],
        },
    }


# As in a typical cluster, most jobs run, some start, and some have ended.
STATES = (
    *(("Running", "Running"),) * 14,
    *((None, "Pending"),) * 3,
    *(("Succeeded", "Succeeded"),) * 2,
    ("Failed", "Failed"),
)


def build_observed(number: int, kind: JobKind) -> Observed:
    condition, phase = STATES[number % len(STATES)]
    name, seconds = f"train-{number}", number % 5_000
    states = () if condition is None else (condition,)
    return read_observed(
        {
            "job": {
                "apiVersion": f"{kind.group}/{kind.version}",
                "kind": kind.name,
                "metadata": {
                    "name": name,
                    "namespace": "ns",
                    "uid": name,
                    "creationTimestamp": format_time(seconds),
                },
                "spec": kind.spec,
                "status": kind.build_status(
                    *states, began=format_time(seconds), changed=format_time(seconds + 60)
                ),
            },
            "pods": [build_pod(name, replica, phase, seconds, kind) for replica in kind.replicas],
            "outputs": condition == "Succeeded",
        }
    )


def list_batches(total: int, kind: JobKind) -> Iterator[list[Observed]]:
    for first in range(0, total, BATCH):
        yield [build_observed(number, kind) for number in range(first, first + BATCH)]


if __name__ == "__main__":
    chosen = KINDS[sys.argv[2] if len(sys.argv) > 2 else DEFAULT.name]
    measure_rate(lambda total: list_batches(total, chosen), lambda state: judge(state, RULES, NOW))
