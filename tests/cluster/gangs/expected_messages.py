"""The phase and message that users see for each event, with JOB in place of the job name.

The table is keyed by event, then by platform; an empty platform is the default. An ellipsis stands for a part
that differs between runs, such as the order of pods or the uid of a job.
"""

import re
from collections.abc import Mapping
from typing import Final

from backend_plugin.core.job_warnings import IN_PART


def is_message_of_event(reported: str, event: str, platform: str) -> bool:
    """True if `reported` matches the expected text of an event on a platform."""
    parts = expected_message(event, platform).split("…")
    return re.fullmatch(".*".join(map(re.escape, parts)), reported, re.DOTALL) is not None


def expected_message(event: str, platform: str) -> str:
    """Return the expected text, with ellipses."""
    by_platform = TOLD[event]
    return by_platform[platform if platform in by_platform else ""]


_NODES: Final = "request less, or what the nodes have: see `kubectl describe nodes`"
_TURN: Final = "it waits in its queue; the wait depends on the queue's quota and the jobs ahead of it"
# YuniKorn may report a full cluster as a full queue, depending on when it checks the queue.
_EITHER: Final = "…"
_STOPPED: Final = (
    "the queue is stopped: it admits no job until an admin sets its stopPolicy to None; wait for that, or"
    " use another queue"
)
_CONFIG: Final = "the task requires something that this cluster does not have or allow; change the task"
_HELD: Final = "(suspended by a queue or a user)"
_IN_PART: Final = f"{IN_PART}\n"


def _inactive(queue: str) -> str:
    return (
        f"no job is admitted until an admin has corrected that; `kubectl describe {queue}` shows the reason:"
        " it is stopped, or an object that it refers to is missing; or use another queue"
    )


def _coscheduled(lacks: int, asked: int, free: int) -> Mapping[str, str]:
    message = (
        f"WAITING_FOR_RESOURCES waiting for {lacks} nvidia.com/gpu in the cluster: {asked} requested, "
        f"{free} free"
        "… (0 of 5 replicas ready)\n"
        f"PodGroup JOB: the group waits for its members to be placed\n{_NODES}\n"
        "message of its scheduler: 0/4 nodes are available: resource gap: "
        f"map[nvidia.com/gpu:{{{{{lacks} 0}} {{<nil>}}  DecimalSI}}]. no new claims to"
        " deallocate, preemption: "
        "0/4 nodes are available: 4 Preemption is not helpful for scheduling., PodGroup"
        " gangs/JOB gets rejected"
        " due to Pod JOB-… is unschedulable even after PostFilter"
    )
    return {"coscheduling-backend": message, "coscheduling-operator": message}


def _kueue(lacks: int, asked: int, free: int, queue: str = "team", beside: str = _IN_PART) -> str:
    return (
        f"WAITING_FOR_RESOURCES waiting for {lacks} nvidia.com/gpu in queue {queue}:"
        f" {asked} requested, {free} free; next in its queue {_HELD}\n{beside}{_TURN}\n"
        "message of its scheduler: couldn't assign flavors to pod set worker: insufficient unused quota for"
        f" nvidia.com/gpu in flavor any, {lacks} more needed"
    )


def _yunikorn(lacks: int, held: int) -> str:
    return (
        f"WAITING_FOR_RESOURCES waiting for {lacks} nvidia.com/gpu…10 requested, {held} held…"
        f" (0 of 5 replicas ready)\n{_EITHER}\n"
        "message of its scheduler: request is waiting for cluster resources become available"
    )


def _surplus(reason: str) -> str:
    return f"RUNNING worker-…, worker-… waiting for a node: {reason} (3 of 5 replicas ready)\n{_NODES}"


_LACK: Final = "no node of 4 fits: 4 lack nvidia.com/gpu"

TOLD: Final[Mapping[str, Mapping[str, str]]] = {
    "blocked": {
        "": f"WAITING_FOR_RESOURCES worker-3 waiting for a node: {_LACK} (4 of 5 replicas ready)\n{_NODES}",
        "yunikorn": (f"WAITING_FOR_RESOURCES worker-3…: … (4 of 5 replicas ready)\n{_EITHER}"),
    },
    "behind": {
        **_coscheduled(4, 10, 6),
        "yunikorn": _yunikorn(4, 6),
        "kueue": _kueue(4, 10, 6),
        "coscheduling-backend-kueue": _kueue(
            4, 10, 6, beside="PodGroup JOB: the group waits for its members to be created\n"
        ),
    },
    "high": {**_coscheduled(4, 10, 6), "yunikorn": _yunikorn(10, 0)},
    "unequal": {
        **_coscheduled(1, 13, 12),
        "yunikorn": (
            "WAITING_FOR_RESOURCES waiting for … nvidia.com/gpu…13 requested, … held…"
            f" (0 of 5 replicas ready)\n{_EITHER}\n"
            "message of its scheduler: request is waiting for cluster resources become available"
        ),
        "kueue": _kueue(1, 13, 12),
    },
    "joining": {
        "": _surplus(f"{_LACK} (requested: 2 nvidia.com/gpu)"),
        "yunikorn": f"RUNNING worker-…: … (3 of 5 replicas ready)\n{_EITHER}",
    },
    "limit": {
        "yunikorn": (
            "WAITING_FOR_RESOURCES waiting for 4 nvidia.com/gpu…6 requested, 2 held…"
            f" (0 of 3 replicas ready)\n{_TURN}"
        ),
        "kueue": _kueue(4, 6, 2, "smaller"),
    },
    "never": {
        "yunikorn": (
            # Its pods end because of this, and their termination may be observed first.
            "FAILED …: queue root.smaller cannot fit application JOB: task group"
            " request map[memory:5368709120 nvidia.com/gpu:10 pods:5 vcore:5000] larger than"
            " max queue allocation"
            f" map[nvidia.com/gpu:8]…{_CONFIG}…"
        ),
        "kueue": (
            "WAITING_FOR_RESOURCES queue smaller: can never be admitted: it requests 10"
            " nvidia.com/gpu, and the maximum is 8…\n"
            "message of its scheduler: couldn't assign flavors to pod set worker: insufficient quota for"
            " nvidia.com/gpu in flavor any, previously considered podsets requests (2) +"
            " current podset request"
            " (8) > maximum capacity (8)"
        ),
    },
    "unknown": {
        "yunikorn": (
            "FAILED …: failed to place application JOB: application rejected: no"
            f" placement rule matched…{_CONFIG}…"
        ),
        "kueue": (
            'FAILED the task cannot be run: custom.kfpytorch.gang.queue="smaller-not": is not a queue of'
            " kueue for this namespace; write smaller"
        ),
    },
    "quota": {
        "": (
            'WAITING_FOR_RESOURCES its pods cannot be created: Error creating: pods "JOB-…" is forbidden:'
            " exceeded quota: pods, requested: pods=1, used: pods=4, limited: pods=4"
            " (0 of 5 replicas ready)\n"
            # The number of pods, or that the PodGroup was missing at first: the scheduler does not check
            # again.
            "… waiting for a node: …\n"
            "PodGroup JOB: the group waits for its members to be created\n"
            "the namespace's ResourceQuota is too small for it: request less, or have an admin raise it"
        ),
    },
    "preempted": {
        "kueue": (
            "RUNNING admitted before and evicted (Preempted); waiting for 4 nvidia.com/gpu in queue team: 10"
            f" requested, 6 free; next in its queue {_HELD}\n{_TURN}\n"
            "message of its scheduler: couldn't assign flavors to pod set worker: insufficient"
            " unused quota for"
            " nvidia.com/gpu in flavor any, 4 more needed; Preempted to accommodate a workload"
            " (UID: …, JobUID:"
            " …) due to prioritization in the ClusterQueue; preemptor path: /team; preemptee path: /team"
        ),
    },
    "given-up": {
        "": (
            "RETRYABLE_FAILED waiting for 4 nvidia.com/gpu in the cluster: 10 requested, 6 free"
            "… (given up after 4 s)\n"
            f"{_NODES}"
        ),
        "yunikorn": (
            "RETRYABLE_FAILED waiting for 4 nvidia.com/gpu…10 requested, 6 held…"
            f" (given up after 4 s)\n{_EITHER}"
        ),
        "kueue": (
            "RETRYABLE_FAILED waiting for 4 nvidia.com/gpu in queue team: 10 requested, 6 free; next in "
            "its queue"
            f" (given up after 4 s)\n{_TURN}"
        ),
    },
    "timed-out": {
        "yunikorn": (
            "RETRYABLE_FAILED master-0 failed: ResourceReservationTimeout: Scheduling has timed out due to"
            f" insufficient resources (unschedulable)\n4 more of 5 replicas failed after it\n{_NODES}"
        ),
    },
    "drained": {
        "kueue": (
            "RUNNING queue team: admitted before and evicted (ClusterQueueStopped); ClusterQueue team is"
            f" inactive {_HELD}\n{_STOPPED}\n"
            "message of its scheduler: ClusterQueue team is inactive; The ClusterQueue is stopped"
        ),
    },
    "stopped": {
        "kueue": (
            f"WAITING_FOR_RESOURCES queue team: ClusterQueue team is inactive {_HELD}\n{_IN_PART}"
            f"{_inactive('clusterqueue team')}"
        ),
    },
    "held": {
        "kueue": (
            f"WAITING_FOR_RESOURCES queue smaller: LocalQueue smaller is inactive {_HELD}\n{_IN_PART}"
            f"{_inactive('localqueue smaller -n gangs')}"
        ),
    },
    "lost-member": {
        **dict.fromkeys(
            ("coscheduling-backend", "coscheduling-operator"),
            "RUNNING worker-… waiting for a node: no node of 4 fits: 4 were unschedulable (4 of 5 replicas"
            f" ready)\nPodGroup JOB: the group waits for its members to be placed\n{_NODES}",
        ),
        "kueue": (
            "RUNNING worker-… waiting for a node: no node of 4 fits: 4 were unschedulable (4 of 5 replicas"
            f" ready)\n{_NODES}"
        ),
    },
    "lost-place": {
        "yunikorn": f"RUNNING worker-…: … (4 of 5 replicas ready)\n{_EITHER}",
    },
}
