"""Scenarios of gang scheduling: each is a function that runs on some of the platforms."""

import re
import time

from rig import fake_nodes
from rig.api import build_manifest, jobs, pods
from rig.caller import Shape
from rig.process import wait_for, wait_until

from gangs.scene import EVENTS, GROUPS, QUEUES
from gangs.scheduler_clusters import GPU, HIGH, LOW, NAMESPACE, OURS, PLATFORMS

MEMBERS = 5
# The gang requests 10 of 16 GPUs, so that one job and half of another fit.
GANG = Shape(workers=MEMBERS - 1, gpus=2)
SMALL = 3
_PATIENCE = 4


def asking(workers=MEMBERS - 1, **gang):
    return Shape(workers=workers, gpus=2, custom={"kfpytorch": {"gang": gang}})


def _gpus(count):
    return {"limits": [{"name": "GPU", "value": str(count)}]}


def running(scene, shape=GANG):
    attempt = scene.create(shape)
    scene.until_told(attempt, "RUNNING")
    return attempt


def waiting(scene, first, shape, event, replicas=MEMBERS):
    """Run a job, and a second one that waits with the message of an event until the first has ended."""
    before = running(scene, first)
    attempt = scene.create(shape)
    scene.hears(attempt, event)
    assert scene.placed(attempt) == 0
    scene.finish(before)
    scene.until_told(attempt, "RUNNING", f"{replicas} of {replicas} replicas ready")
    return attempt


def grouped(scene):
    """The PodGroup is owned by the job and has the requests of the gang. It is deleted when the job ends.

    A PodGroup of our server that is deleted earlier is created again.
    """
    attempt = running(scene)
    (group,) = scene.groups()
    if OURS[scene.platform.name][0] == "our PodGroup":
        path = f"{GROUPS}/{attempt.job}"
        scene.plane.admin.delete(path)
        wait_until(lambda: _is_another(scene, path, group))
        (group,) = scene.groups()
    assert group["metadata"]["name"] == attempt.job
    assert [each["uid"] for each in group["metadata"]["ownerReferences"]] == [attempt.uid]
    wanted = {"minMember": MEMBERS, "minResources": {"cpu": "5", "memory": "5Gi", GPU: "10"}}
    assert {key: group["spec"][key] for key in wanted} == wanted
    scene.finish(attempt)
    wait_for(scene.groups, lambda groups: not groups)


def jobs_take_turns(scene):
    """The first of two gangs runs. The other waits without bound pods, and runs when the first has ended."""
    both = scene.create(GANG), scene.create(GANG)
    wait_for(lambda: [*map(scene.placed, both)], lambda placed: MEMBERS in placed)
    other, one = sorted(both, key=scene.placed)
    scene.until_told(one, "RUNNING")
    scene.hears(other, "behind")
    assert scene.placed(other) == 0
    scene.finish(one)
    scene.until_told(other, "RUNNING", "5 of 5 replicas ready")
    scene.until_told(one, "SUCCEEDED")
    scene.finish(other)
    scene.until_told(other, "SUCCEEDED")
    wait_for(scene.reserving, lambda names: not names)


def unequal(scene):
    """A gang with one GPU for the master and three per worker needs 13; it waits while only 12 are free."""
    custom = {
        "masterReplicas": {"replicas": 1, "resources": _gpus(1)},
        "workerReplicas": {"replicas": MEMBERS - 1, "resources": _gpus(3)},
    }
    attempt = waiting(scene, Shape(workers=1, gpus=2), Shape(custom=custom), "unequal")
    asked = [pod["spec"]["containers"][0]["resources"]["limits"][GPU] for pod in scene.pods(attempt)]
    assert asked == ["1", "3", "3", "3", "3"]


def sidecars(scene):
    """The placeholders of a gang match its pods, whose native sidecars request more than the trainers."""
    attempt = scene.create(Shape(workers=MEMBERS - 1, gpus=2, sidecar_cpu="3"))
    scene.until_told(attempt, "RUNNING", "5 of 5 replicas ready")
    messages = [str(each.get("message", "")) for each in scene.plane.admin.items(EVENTS)]
    assert not [each for each in messages if "not matching placeholder" in each]


ELASTIC = Shape(
    gpus=2,
    custom={
        "workerReplicas": {"replicas": MEMBERS},
        "elasticConfig": {"minReplicas": 2, "maxReplicas": MEMBERS, "nprocPerNode": 1},
    },
)


def elastic(scene):
    """An elastic gang starts with its minimum of two replicas. A third one fits; the others join later."""
    first = running(scene)
    attempt = scene.create(ELASTIC)
    scene.until_placed(attempt, 3)
    scene.hears(attempt, "joining")
    scene.finish(first)
    scene.until_placed(attempt, MEMBERS)
    scene.until_told(attempt, "RUNNING", "5 of 5 replicas ready")


def elastic_counts_all(scene):
    """A queue of whole jobs counts all five replicas of an elastic gang, not only its minimum."""
    waiting(scene, GANG, ELASTIC, "behind")


def queue_limit(scene):
    """A queue with eight GPUs runs one job of six. A second one waits, although ten GPUs are free."""
    shape = asking(SMALL - 1, queue=scene.platform.smaller)
    waiting(scene, shape, shape, "limit", replicas=SMALL)


def queue_never(scene):
    """Messages for a gang that exceeds its queue, and for a queue that does not exist."""
    scene.hears(scene.create(asking(queue=scene.platform.smaller)), "never")
    scene.hears(scene.create(asking(queue=f"{scene.platform.smaller}-not")), "unknown")


def quota(scene):
    """A quota of four pods lets four pods of a gang of five be created, and none of them is bound."""
    path = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/pods"
    spec = {"hard": {"pods": "4"}}
    with scene.plane.admin.having(build_manifest("v1", "ResourceQuota", "pods", NAMESPACE, spec=spec)):
        wait_until(lambda: "hard" in (scene.plane.admin.get(path) or {})["status"])
        attempt = scene.create(GANG)
        scene.hears(attempt, "quota")
        assert scene.placed(attempt) == 0
    scene.until_told(attempt, "RUNNING", "5 of 5 replicas ready")


def priority(scene):
    """A job with higher priority starts before an older one with lower priority, and does not preempt."""
    first = running(scene, asking(priorityClassName=LOW))
    low = scene.create(asking(priorityClassName=LOW))
    scene.hears(low, "behind")
    high = scene.create(asking(priorityClassName=HIGH))
    scene.hears(high, "high")
    assert scene.placed(first) == MEMBERS
    scene.finish(first)
    scene.until_told(high, "RUNNING")
    scene.hears(low, "behind")
    assert scene.placed(low) == 0


def preemption(scene):
    """A job with higher priority preempts a running one, which stays RUNNING in Flyte and resumes later."""
    with scene.watched():
        low = running(scene, asking(priorityClassName=LOW))
        high = running(scene, asking(priorityClassName=HIGH))
        wait_for(lambda: scene.pods(low), lambda found: not found)
        scene.hears(low, "preempted")
        message = scene.until_turned(low, "WaitingForResources")
        assert message.startswith(("admitted before and", "queue team: admitted before and"))
        scene.served.process.stop()
        scene.served.start()
        scene.hears(low, "preempted")
        scene.finish(high)
        scene.until_told(low, "RUNNING", "5 of 5 replicas ready")
        assert scene.until_turned(low, "WaitingForResources", "Resumed") == "5 of 5 replicas ready"
        scene.finish(low)
        scene.until_told(low, "SUCCEEDED")
    assert (len(scene.turns(low)), scene.turns(high)) == (2, [])


def queue_stopped(scene):
    """Draining a queue makes its running job wait again. New jobs in it or in a stopped queue wait, too."""
    attempt = running(scene)
    path = f"{QUEUES}/clusterqueues/team"
    local = f"{QUEUES}/namespaces/{NAMESPACE}/localqueues/{scene.platform.smaller}"
    try:
        scene.plane.admin.patch(path, {"spec": {"stopPolicy": "HoldAndDrain"}})
        scene.plane.admin.patch(local, {"spec": {"stopPolicy": "Hold"}})
        scene.hears(attempt, "drained")
        scene.until_turned(attempt, "WaitingForResources")
        other = scene.create(GANG)
        scene.hears(other, "stopped")
        scene.hears(scene.create(asking(SMALL - 1, queue=scene.platform.smaller)), "held")
    finally:
        scene.plane.admin.patch(path, {"spec": {"stopPolicy": "None"}})
        scene.plane.admin.patch(local, {"spec": {"stopPolicy": "None"}})
    scene.caller.delete(other)  # A job that lost its admission may be admitted last, so delete the other one.
    scene.until_told(attempt, "RUNNING", "5 of 5 replicas ready")
    scene.until_turned(attempt, "WaitingForResources", "Resumed")


def queue_timeout(scene):
    """A job that waits longer than the queue timeout of its author fails and keeps no resources."""
    running(scene)
    scene.hears(scene.create(asking(queueTimeoutSeconds=_PATIENCE)), "given-up")


_AGAIN = {"restartPolicy": "RESTART_POLICY_ON_FAILURE"}
PERSISTENT = Shape(
    gpus=2,
    custom={
        "masterReplicas": {"replicas": 1, **_AGAIN},
        "workerReplicas": {"replicas": MEMBERS - 1, **_AGAIN},
    },
)


def lost_place(scene):
    """The room of a lost replica goes to a waiting gang, and comes back when that gang is aborted."""
    attempt = running(scene, PERSISTENT)
    other = scene.create(GANG)
    wait_for(lambda: scene.held(other), lambda held: held == SMALL)
    _lose_one(scene, attempt)
    wait_for(lambda: scene.held(other), lambda held: held == SMALL + 1)
    scene.hears(attempt, "lost-place")
    assert "waiting for " in scene.until_turned(attempt, "WaitingForResources")
    assert scene.placed(attempt) == MEMBERS - 1
    scene.caller.delete(other)
    scene.until_placed(attempt, MEMBERS)
    scene.until_told(attempt, "RUNNING", "5 of 5 replicas ready")
    scene.until_turned(attempt, "WaitingForResources", "Resumed")


def places_timeout(scene):
    """A gang with some placeholders times out if it does not get the others: it fails and releases them.

    A replica that is lost in the meantime gets a place again, whoever had its place before.
    """
    with scene.saying(**{"schedule-timeout": f"{_PATIENCE}s"}) as hasty:
        first = running(hasty, PERSISTENT)
        attempt = hasty.create(GANG)
        _lose_one(hasty, first)
        hasty.hears(attempt, "timed-out")
        wait_for(hasty.reserving, lambda names: not names)
        hasty.until_placed(first, MEMBERS)
        hasty.until_told(first, "RUNNING", "5 of 5 replicas ready")


def lost_member(scene):
    """A lost replica for which no node is open waits; the job stays RUNNING in Flyte."""
    attempt = running(scene, PERSISTENT)
    # Timestamps have whole seconds: a replacement in the second of the start would look like a first pod.
    time.sleep(2)
    with fake_nodes.cordoned(scene.plane):
        _lose_one(scene, attempt)
        scene.hears(attempt, "lost-member")
        message = scene.until_turned(attempt, "WaitingForResources")
        # The event keeps the first message, which may have changed since.
        assert re.match(r"worker-1 waiting for a node: .+ \(4 of 5 replicas ready", message), message
    scene.until_told(attempt, "RUNNING", "5 of 5 replicas ready")
    scene.until_turned(attempt, "WaitingForResources", "Resumed")


def admitted(scene):
    """A job that its queue has admitted waits for resources while no node is open."""
    with fake_nodes.cordoned(scene.plane):
        attempt = scene.create(GANG)
        scene.until_told(attempt, "WAITING_FOR_RESOURCES", "no node of 4 fits: 4 were unschedulable")
        assert not scene.placed(attempt)
    scene.until_told(attempt, "RUNNING", "5 of 5 replicas ready")


def selected(scene):
    """The scheduler that `auto` detects is used."""
    first = running(scene)
    scene.until_told(first, "RUNNING", "5 of 5 replicas ready")
    assert (scene.ganged(first), scene.scheduler(first)) == OURS[scene.platform.name]


def _lose_one(scene, attempt):
    lost = scene.pods(attempt)[2]
    path = pods(NAMESPACE, lost["metadata"]["name"])
    scene.plane.admin.delete(path)
    wait_until(lambda: _is_another(scene, path, lost))


def _is_another(scene, path, lost):
    found = scene.plane.admin.get(path)
    return found is not None and found["metadata"]["uid"] != lost["metadata"]["uid"]


def abort(scene):
    """An aborted job in the queue leaves nothing and does not affect the running job."""
    first = running(scene)
    attempt = scene.create(GANG)
    scene.hears(attempt, "behind")
    scene.caller.delete(attempt)
    scene.plane.admin.wait_until_gone(jobs(NAMESPACE, attempt.job))
    wait_for(scene.all_pods, lambda names: len(names) == MEMBERS, 90)
    wait_for(scene.companions, lambda names: names <= {first.job})
    assert scene.placed(first) == MEMBERS


def second_attempt(scene):
    """The attempt after a failed one is a separate gang, and gets its room immediately."""
    attempt = running(scene)
    for pod in scene.pods(attempt):
        scene.fail(pod)
    scene.until_told(attempt, "FAILED", "exit code 1")
    again = scene.create(GANG, scene.caller.attempt(1, attempt.execution))
    scene.until_told(again, "RUNNING", "5 of 5 replicas ready")
    assert again.job != attempt.job
    scene.plane.admin.wait_until_gone(jobs(NAMESPACE, attempt.job))
    wait_for(scene.companions, lambda names: names <= {again.job})


_BOTH = "coscheduling-backend-kueue"
_GANGS = ("coscheduling-backend", "yunikorn", "kueue")
_QUEUES = ("yunikorn", "kueue")

SCENARIOS = {
    grouped: ("coscheduling-backend", "coscheduling-operator"),
    jobs_take_turns: (*_GANGS, "coscheduling-operator", _BOTH),
    unequal: _GANGS,
    sidecars: ("yunikorn",),
    elastic: ("coscheduling-backend", "yunikorn"),
    elastic_counts_all: ("kueue",),
    queue_limit: _QUEUES,
    queue_never: _QUEUES,
    quota: ("coscheduling-backend",),
    priority: ("coscheduling-backend", "yunikorn"),
    preemption: ("kueue",),
    queue_stopped: ("kueue",),
    queue_timeout: ("yunikorn", "kueue"),
    places_timeout: ("yunikorn",),
    lost_place: ("yunikorn",),
    lost_member: ("coscheduling-backend", "kueue"),
    admitted: ("kueue",),
    selected: tuple(name for name, platform in PLATFORMS.items() if platform.like),
    abort: (*_GANGS, _BOTH),
    second_attempt: _GANGS,
}
"""The scenarios, each with the platforms on which it is possible and differs."""
