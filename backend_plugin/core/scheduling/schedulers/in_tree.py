"""The gang scheduling of Kubernetes itself: only its status parser, because a PyTorchJob cannot use it."""

from typing import Final

from backend_plugin.core.observed import PodGroup
from backend_plugin.core.scheduling.words import Words
from backend_plugin.core.waits import Stage, Wait
from kfpytorch_common.causes import Cause


def _of_group(group: PodGroup) -> Wait | None:
    for condition in group.conditions:
        if condition.type == "PodGroupInitiallyScheduled" and not condition.true:
            return Wait(
                stage=Stage.UNPLACED,
                cause=Cause.UNSCHEDULABLE,
                reason=condition.reason or condition.type,
                said=condition.message or "the gang is not placed yet",
                since=condition.since,
                queue=group.queue,
            )
    return None


WORDS: Final = Words(api="scheduling.k8s.io", group=_of_group)
