"""The adapter for co-scheduling of kubernetes-sigs/scheduler-plugins.

The operator creates the PodGroup if it runs with ``--gang-scheduler-name``; otherwise this server does. A
PodGroup has no queue; the priority of a gang is that of its pods.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from backend_plugin.core.observed import Observed, PodGroup
from backend_plugin.core.scheduling.adapter import (
    MIN_MEMBER,
    SCHEDULER_NAME,
    TIMEOUT,
    Adapter,
    Companion,
    Marks,
    Rank,
    Seen,
    Sighting,
)
from backend_plugin.core.scheduling.findings import Findings
from backend_plugin.core.scheduling.gang import Gang
from backend_plugin.core.scheduling.operated import (
    FLAG,
    OPERATOR,
    PLUGIN,
    unless_operator,
    unless_ours,
    without_operator,
)
from backend_plugin.core.scheduling.words import Words, amount
from backend_plugin.core.values import Manifest
from backend_plugin.core.waits import Lack, Note, Said, Stage, Wait
from kfpytorch_common.causes import Cause

_GROUP: Final = "scheduling.x-k8s.io"
_LABEL: Final = f"{_GROUP}/pod-group"
_KEYS: Final = (f"{_GROUP}/",)
# The scheduler name in its Helm chart.
_NAME: Final = "scheduler-plugins-scheduler"
_UNDERSTANDS: Final = frozenset({MIN_MEMBER, TIMEOUT, SCHEDULER_NAME})


def _operators_marks(gang: Gang) -> Marks:
    # Written in full: the minimum that the operator computes omits sidecars and is not deterministic.
    policy = {"minAvailable": gang.min_member, "minResources": gang.min_resources, **_timeout(gang)}
    return Marks(
        run_policy={"schedulingPolicy": policy},
        priority_class_name=gang.priority_class_name,
        other_words={_LABEL: gang.name},
    )


def _our_marks(gang: Gang) -> Marks:
    return Marks(
        scheduler_name=gang.scheduler_name,
        priority_class_name=gang.priority_class_name,
        pod_labels={_LABEL: gang.name},
    )


def _spec(gang: Gang) -> Manifest:
    return {"minMember": gang.min_member, "minResources": gang.min_resources, **_timeout(gang)}


def _timeout(gang: Gang) -> Manifest:
    """Return the time for which placed members wait for the others."""
    return {} if gang.timeout_seconds is None else {"scheduleTimeoutSeconds": gang.timeout_seconds}


def _is_asked(name: str) -> bool:
    """True if the operator creates PodGroups of co-scheduling: for every name except ``volcano``."""
    return name.lower() != "volcano"


def _operator(found: Findings, _: str) -> Seen | None:
    if not found.operator_scheduler or not _is_asked(found.operator_scheduler):
        return None
    return Seen(
        why=f"the training-operator runs with {FLAG}={found.operator_scheduler}",
        scheduler_name=found.operator_scheduler,
    )


# ---- status parser


_GAP: Final = re.compile(r"resource gap: map\[([^][]{0,1000})\]")
# A printed Go struct: the value, and the power of ten by which it is multiplied.
_AMOUNT: Final = re.compile(r"(\d{1,18}) (-?\d{1,2})\}")
_SIBLINGS: Final = re.compile(
    r"enough sibling pods, current pods number: (\d{1,9}), minMember of group: (\d{1,9})"
)
_OTHERS: Final = (
    (
        re.compile(r"cannot proceed due to gated pods"),
        "scheduling gates hold members of its gang",
    ),
    (
        re.compile(
            r"rejected due to Pod \S{1,253} is unschedulable|rejection in PostFilter|failed recently"
            r"|rejected due to timeout after waiting"
        ),
        "not all members of its gang can be placed",
    ),
)
"""The messages for members of a gang if another member is unschedulable."""
# Nodes rejected such a pod itself. The same message continues with the state of its gang.
_REFUSED_BY_NODES: Final = re.compile(
    r"nodes are available: ?(?:\d{1,9} (?:Insufficient|node\(s\)|Too many pods)"
    r"|pod has unbound|persistentvolumeclaim|waiting for ephemeral volume)"
)
# A pod without a pod group has the message "can not find pod group", which is harmless.
_GROUPLESS: Final = "PodGroup not found"


def _entries(gap: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and power of ten of each amount that a Go struct was printed with."""
    for before, after in pairwise(gap.split(":{{")):
        name, amount_of = before.rpartition(" ")[2], _AMOUNT.match(after)
        if name and amount_of:
            yield name, amount_of[1], amount_of[2]


def _message(message: str) -> Said | None:
    if gap := _GAP.search(message):
        lacks = [
            Lack(resource=name, missing=amount(name, f"{value}e{scale}"), counts_own=True)
            for name, value, scale in _entries(gap[1])
        ]
        return Said(lacks=tuple(lacks)) if lacks else None
    if found := _SIBLINGS.search(message):
        return Said(said=f"{found[1]} of the {found[2]} members of its gang exist", follows=True)
    if _REFUSED_BY_NODES.search(message):
        return None
    for says, said in _OTHERS:
        if says.search(message):
            return Said(said=said, follows=True)
    return (
        Said(said="its PodGroup did not exist when its scheduler checked") if _GROUPLESS in message else None
    )


_PHASES: Final = {
    "Pending": "the group waits for its members to be created",
    "PreScheduling": "the group waits for its members",
    "Scheduling": "the group waits for its members to be placed",
}
"""The messages by phase; messages of the members take precedence."""


def _of_group(group: PodGroup) -> Wait | None:
    said = _PHASES.get(group.phase)
    if said is None:
        return None
    said = f"PodGroup {group.name}: {said}"
    return Wait(stage=Stage.UNPLACED, cause=Cause.UNSCHEDULABLE, reason=group.phase, said=said, follows=True)


def _notes(observed: Observed) -> Iterable[Note]:
    """Yield a warning if the controller is missing: it sets the phase and wakes pending members."""
    waiting = [pod for pod in observed.pods if pod.scheduled is not None and not pod.placed]
    for group in observed.pod_groups:
        if group.api == _GROUP and not group.phase and waiting:
            yield Note(
                said=f"PodGroup {group.name} has no status: does scheduler-plugins-controller run? Without"
                " it the scheduler retries a pending gang only after minutes",
                since=group.created,
            )


_WORDS: Final = Words(api=_GROUP, message=_message, group=_of_group, notes=_notes, controlled=True)

STYLES: Final = {
    OPERATOR: Adapter(
        marks=_operators_marks,
        by_operator=True,
        scheduler_name=_NAME,
        understands=_UNDERSTANDS,
        keys=_KEYS,
        words=_WORDS,
        sighting=Sighting(rank=Rank.OPERATOR, sees=_operator),
        denied=unless_operator(_GROUP, _is_asked),
    ),
    PLUGIN: Adapter(
        marks=_our_marks,
        companion=Companion(api_version=f"{_GROUP}/v1alpha1", kind="PodGroup", spec=_spec),
        scheduler_name=_NAME,
        understands=_UNDERSTANDS,
        keys=_KEYS,
        words=_WORDS,
        sighting=Sighting(rank=Rank.API, sees=without_operator(_GROUP)),
        denied=unless_ours(_GROUP),
    ),
}
