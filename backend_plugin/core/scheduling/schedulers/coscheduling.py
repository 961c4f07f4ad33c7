"""The adapter for co-scheduling of kubernetes-sigs/scheduler-plugins, whose PodGroups have no queue.

The training-operator creates the PodGroup of a PyTorchJob if it runs with ``--gang-scheduler-name``. In all
other cases this server creates it.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from backend_plugin.core.judging import pending
from backend_plugin.core.observed import Observed, PodGroup
from backend_plugin.core.scheduling import adapter
from backend_plugin.core.scheduling.gang import GangSpec
from backend_plugin.core.scheduling.status_parser import StatusParser, parse_amount
from backend_plugin.core.values import Manifest
from kfpytorch_common.causes import Cause

_GROUP: Final = "scheduling.x-k8s.io"
_LABEL: Final = f"{_GROUP}/pod-group"
# The prefix of the labels that older releases read.
_OLD: Final = "pod-group.scheduling.sigs.k8s.io"


def _build_operator_fields(gang: GangSpec) -> adapter.SchedulingFields:
    # Both are always set: the minimum that the operator computes omits sidecars and is not deterministic.
    minimum: Manifest = {"minAvailable": gang.min_member, "minResources": gang.min_resources}
    return adapter.SchedulingFields(
        scheduling_policy={**minimum, **_build_timeout_field(gang)},
        priority_class_name=gang.priority_class_name,
        permitted_values={_LABEL: gang.name},
    )


def _build_backend_fields(gang: GangSpec) -> adapter.SchedulingFields:
    return adapter.SchedulingFields(
        scheduler_name=gang.scheduler_name,
        priority_class_name=gang.priority_class_name,
        pod_labels={_LABEL: gang.name},
    )


def _build_pod_group_spec(gang: GangSpec) -> Manifest:
    return {"minMember": gang.min_member, "minResources": gang.min_resources, **_build_timeout_field(gang)}


def _build_timeout_field(gang: GangSpec) -> Manifest:
    return {} if gang.timeout_seconds is None else {"scheduleTimeoutSeconds": gang.timeout_seconds}


# ---- status parser


_GAP: Final = re.compile(r"resource gap: map\[([^][]{0,1000})\]")
# A printed Go struct: the value, and the power of ten by which it is multiplied.
_AMOUNT: Final = re.compile(r"(\d{1,18}) (-?\d{1,2})\}")
_SIBLINGS: Final = re.compile(
    r"enough sibling pods, current pods number: (\d{1,9}), minMember of group: (\d{1,9})"
)
_FOLLOWED: Final = re.compile(
    r"rejected due to Pod \S{1,253} is unschedulable|rejection in PostFilter|failed recently"
    r"|rejected due to timeout after waiting"
)
_REFUSED_BY_NODES: Final = re.compile(
    r"nodes are available: ?(?:\d{1,9} (?:Insufficient|node\(s\)|Too many pods)"
    r"|pod has unbound|persistentvolumeclaim|waiting for ephemeral volume)"
)
_OTHERS: Final = (
    # The nodes rejected the pod itself, so the rest of the message, the state of its gang, does not count.
    (_REFUSED_BY_NODES, None),
    (
        re.compile(r"cannot proceed due to gated pods"),
        pending.SchedulerMessage(text="scheduling gates hold members of its gang", follows=True),
    ),
    (_FOLLOWED, pending.SchedulerMessage(text="not all members of its gang can be placed", follows=True)),
    # A pod without a pod group has the message "can not find pod group", which is harmless.
    (
        re.compile(r"PodGroup not found"),
        pending.SchedulerMessage(text="its PodGroup did not exist when its scheduler checked"),
    ),
)
"""The patterns of other scheduler messages, each with its meaning; None for a message that is ignored.

The first pattern that matches applies.
"""


def _iter_amounts(gap: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, digits and decimal exponent of each resource quantity in `gap`, a map that Go printed."""
    for before, after in pairwise(gap.split(":{{")):
        name, amount_of = before.rpartition(" ")[2], _AMOUNT.match(after)
        if name and amount_of:
            yield name, amount_of[1], amount_of[2]


def _parse_message(message: str) -> pending.SchedulerMessage | None:
    if gap := _GAP.search(message):
        shortages = [
            pending.ResourceShortage(
                resource=name, missing=parse_amount(name, f"{value}e{scale}"), counts_own=True
            )
            for name, value, scale in _iter_amounts(gap[1])
        ]
        return pending.SchedulerMessage(shortages=tuple(shortages)) if shortages else None
    if siblings := _SIBLINGS.search(message):
        return pending.SchedulerMessage(
            text=f"{siblings[1]} of the {siblings[2]} members of its gang exist", follows=True
        )
    return next((meaning for pattern, meaning in _OTHERS if pattern.search(message)), None)


_PHASES: Final = {
    "Pending": "the group waits for its members to be created",
    "PreScheduling": "the group waits for its members",
    "Scheduling": "the group waits for its members to be placed",
}
"""The text of the pending reason, by the phase of the PodGroup; messages about its pods take precedence."""


def _find_group_reason(group: PodGroup) -> pending.PendingReason | None:
    if group.phase not in _PHASES:
        return None
    return pending.PendingReason(
        stage=pending.PendingStage.UNPLACED,
        cause=Cause.UNSCHEDULABLE,
        reason=group.phase,
        text=f"PodGroup {group.name}: {_PHASES[group.phase]}",
        follows=True,
    )


def _iter_warnings(observed: Observed) -> Iterable[pending.JobWarning]:
    """Yield a warning if pods wait and the PodGroup has no phase: its controller is possibly not running."""
    if not any(pod.scheduled is not None and not pod.is_bound for pod in observed.pods):
        return
    for group in observed.pod_groups:
        if (group.api, group.phase) == (_GROUP, ""):
            yield pending.JobWarning(
                text=f"PodGroup {group.name} has no status: does scheduler-plugins-controller run? Without"
                " it the scheduler retries a pending gang only after minutes",
                since=group.created,
            )


_BY_OPERATOR: Final = adapter.SchedulerAdapter(
    marks=_build_operator_fields,
    title="co-scheduling",
    groups=adapter.SchedulerResource(group=_GROUP, plural="podgroups", kind="PodGroup"),
    matches_flag=lambda name: name.lower() not in ("", "volcano"),
    scheduler_name="scheduler-plugins-scheduler",  # The default of its Helm chart.
    understands=frozenset({adapter.MIN_MEMBER, adapter.TIMEOUT, adapter.SCHEDULER_NAME}),
    keys=(f"{_GROUP}/",),
    gang_keys=(_OLD, f"{_OLD}/name", _LABEL),
    status_parser=StatusParser(
        api=_GROUP, message=_parse_message, group=_find_group_reason, notes=_iter_warnings, controlled=True
    ),
)
ADAPTERS: Final = adapter.build_adapters(
    _BY_OPERATOR,
    adapter.Companion(api_version=f"{_GROUP}/v1alpha1", kind="PodGroup", spec=_build_pod_group_spec),
    marks=_build_backend_fields,
)
