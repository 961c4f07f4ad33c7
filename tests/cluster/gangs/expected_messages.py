"""The phase and the beginning of the message for each event, with JOB in place of the job name.

The table is keyed by event, then by platform; an empty platform is the default. An ellipsis stands for a part
that differs between runs, such as the order of pods or the uid of a job. The golden verdicts contain the
remedies and the text of the schedulers, which follow in the next lines.
"""

import re


def is_message_of_event(reported, event, platform):
    """True if `reported` begins with the expected text of an event on a platform."""
    by_platform = TOLD[event]
    parts = by_platform[platform if platform in by_platform else ""].split("…")
    return re.match(".*".join(map(re.escape, parts)), reported, re.DOTALL) is not None


_HELD = "(suspended by a queue or a user)"
_LACK = "no node of 4 fits: 4 lack nvidia.com/gpu"
_CORDONED = (
    "RUNNING worker-… waiting for a node: no node of 4 fits: 4 were unschedulable (4 of 5 replicas ready)"
)


def _wait(lacks, place, asked, free):
    return f"waiting for {lacks} nvidia.com/gpu in {place}: {asked} requested, {free} free"


def _coscheduled(lacks, asked, free):
    message = f"WAITING_FOR_RESOURCES {_wait(lacks, 'the cluster', asked, free)}… (0 of 5 replicas ready)\n"
    return {"coscheduling-backend": message, "coscheduling-operator": message}


def _kueue(lacks, asked, free, queue="team"):
    waiting = _wait(lacks, f"queue {queue}", asked, free)
    return f"WAITING_FOR_RESOURCES {waiting}; next in its queue {_HELD}\n"


def _yunikorn(lacks, asked, held, replicas=5):
    return (
        f"WAITING_FOR_RESOURCES waiting for {lacks} nvidia.com/gpu…{asked} requested, {held} held…"
        f" (0 of {replicas} replicas ready)\n"
    )


TOLD = {
    "behind": {
        **_coscheduled(4, 10, 6),
        "yunikorn": _yunikorn(4, 10, 6),
        "kueue": _kueue(4, 10, 6),
        "coscheduling-backend-kueue": _kueue(4, 10, 6),
    },
    "high": {**_coscheduled(4, 10, 6), "yunikorn": _yunikorn(10, 10, 0)},
    "unequal": {**_coscheduled(1, 13, 12), "yunikorn": _yunikorn("…", 13, "…"), "kueue": _kueue(1, 13, 12)},
    "joining": {
        "": f"RUNNING worker-…, worker-… waiting for a node: {_LACK} (requested: 2 nvidia.com/gpu)"
        " (3 of 5 replicas ready)\n",
        "yunikorn": "RUNNING worker-…: … (3 of 5 replicas ready)\n",
    },
    "limit": {"yunikorn": _yunikorn(4, 6, 2, 3), "kueue": _kueue(4, 6, 2, "smaller")},
    "never": {
        # Its pods end because of this, and their termination may be observed first.
        "yunikorn": "FAILED …: queue root.smaller cannot fit application JOB: ",
        "kueue": "WAITING_FOR_RESOURCES queue smaller: can never be admitted: it requests 10 nvidia.com/gpu,"
        " and the maximum is 8",
    },
    "unknown": {
        "yunikorn": "FAILED …: failed to place application JOB: application rejected: ",
        "kueue": 'FAILED the task cannot be run: custom.kfpytorch.gang.queue="smaller-not": is not a queue of'
        " kueue for this namespace; write smaller",
    },
    "quota": {
        "": "WAITING_FOR_RESOURCES its pods cannot be created: …exceeded quota: pods…(0 of 5 replicas ready)"
    },
    "preempted": {
        "kueue": "RUNNING admitted before and evicted (Preempted);"
        f" {_wait(4, 'queue team', 10, 6)}; next in its queue {_HELD}\n"
    },
    "given-up": {
        "yunikorn": "RETRYABLE_FAILED waiting for 4 nvidia.com/gpu…10 requested, 6 held…(given up after 4 s)",
        "kueue": f"RETRYABLE_FAILED {_wait(4, 'queue team', 10, 6)}; next in its queue (given up after 4 s)",
    },
    "timed-out": {
        "yunikorn": "RETRYABLE_FAILED master-0 failed: ResourceReservationTimeout: …(unschedulable)\n"
        "4 more of 5 replicas failed after it\n"
    },
    "drained": {
        "kueue": "RUNNING queue team: admitted before and evicted (ClusterQueueStopped); ClusterQueue team is"
        f" inactive {_HELD}\n"
    },
    "stopped": {"kueue": f"WAITING_FOR_RESOURCES queue team: ClusterQueue team is inactive {_HELD}\n"},
    "held": {"kueue": f"WAITING_FOR_RESOURCES queue smaller: LocalQueue smaller is inactive {_HELD}\n"},
    "lost-member": {"": f"{_CORDONED}\n"},
    "lost-place": {"yunikorn": "RUNNING worker-…: … (4 of 5 replicas ready)\n"},
}
