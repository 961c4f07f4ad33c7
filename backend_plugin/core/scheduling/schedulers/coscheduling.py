"""Co-scheduling of kubernetes-sigs/scheduler-plugins.

Its PodGroup is made by the operator, where that runs with ``--gang-scheduler-name``, or by us. It knows no
queues; the priority of a gang is that of its pods.
"""

from collections.abc import Sequence
from typing import Final

from backend_plugin.core.scheduling.adapter import MIN_MEMBER, SCHEDULER_NAME, TIMEOUT, Adapter, Marks
from backend_plugin.core.scheduling.gang import Gang
from backend_plugin.core.values import Manifest

_LABEL: Final = "scheduling.x-k8s.io/pod-group"
# What its chart calls it.
_MADE: Final = ("scheduling.x-k8s.io/v1alpha1", "PodGroup")
_NAME: Final = "scheduler-plugins-scheduler"
_UNDERSTANDS: Final = frozenset({MIN_MEMBER, TIMEOUT, SCHEDULER_NAME})


def _operators_marks(gang: Gang) -> Marks:
    # Said in full: what the operator would compute leaves out sidecars, and differs from time to time.
    policy = {"minAvailable": gang.min_member, "minResources": gang.min_resources, **_timeout(gang)}
    return Marks(
        run_policy={"schedulingPolicy": policy},
        priority_class_name=gang.priority_class_name,
    )


def _our_marks(gang: Gang) -> Marks:
    return Marks(
        scheduler_name=gang.scheduler_name,
        priority_class_name=gang.priority_class_name,
        pod_labels={_LABEL: gang.name},
    )


def _group(gang: Gang) -> Sequence[Manifest]:
    spec = {"minMember": gang.min_member, "minResources": gang.min_resources, **_timeout(gang)}
    return [
        {
            "apiVersion": _MADE[0],
            "kind": _MADE[1],
            "spec": spec,
        }
    ]


def _timeout(gang: Gang) -> Manifest:
    """How long those wait for the others who have found a place."""
    return {} if gang.timeout_seconds is None else {"scheduleTimeoutSeconds": gang.timeout_seconds}


STYLES: Final = {
    "operator": Adapter(marks=_operators_marks, scheduler_name=_NAME, understands=_UNDERSTANDS),
    "plugin": Adapter(
        marks=_our_marks, companions=_group, makes=_MADE, scheduler_name=_NAME, understands=_UNDERSTANDS
    ),
}
