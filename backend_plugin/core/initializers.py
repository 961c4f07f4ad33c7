"""The state of initializers: pods that load data before the replicas of a job are created."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from backend_plugin.core import pending_reasons
from backend_plugin.core.observed import Pod
from backend_plugin.core.pending import PendingReason, PendingStage
from kfpytorch_common.causes import Cause


def find_end(pods: Iterable[Pod]) -> datetime | None:
    """Return the latest end time of the initializers; None if none has ended."""
    ends = filter(None, [pod.termination for pod in pods])
    return max(filter(None, [end.finished for end in ends]), default=None)


def list_reasons(pods: Iterable[Pod], exit_codes: Mapping[int, Cause]) -> Iterator[PendingReason]:
    """Yield a pending reason for each initializer that has not ended, because the replicas wait for it."""
    for pod in pods:
        if (wait := pending_reasons.find_pod_reason(pod, exit_codes)) is not None:
            yield wait
        elif pod.phase == "Running":
            # Without `since`, so that no timeout applies: a download may take longer than the start of a pod.
            yield PendingReason(
                stage=PendingStage.STARTING,
                cause=Cause.SYSTEM_ERROR,
                reason="Initializing",
                text=f"the {pod.role.removesuffix('-initializer')} is being loaded",
                replicas=(pod.replica,),
            )
