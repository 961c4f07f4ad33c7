"""The parser for the pod groups of Kubernetes' own gang scheduling.

There is no adapter, because a PyTorchJob cannot use these groups.
"""

from typing import Final

from backend_plugin.core.judging.pending import PendingReason, PendingStage
from backend_plugin.core.observed import PodGroup
from backend_plugin.core.scheduling.status_parser import StatusParser
from kfpytorch_common.causes import Cause


def _find_group_reason(group: PodGroup) -> PendingReason | None:
    for condition in group.conditions:
        if condition.type == "PodGroupInitiallyScheduled" and not condition.true:
            return PendingReason(
                stage=PendingStage.UNPLACED,
                cause=Cause.UNSCHEDULABLE,
                reason=condition.reason or condition.type,
                text=condition.message or "the gang is not placed yet",
                since=condition.since,
                queue=group.queue,
            )
    return None


STATUS_PARSER: Final = StatusParser(api="scheduling.k8s.io", group=_find_group_reason)
