"""Property tests: the controller reaches a state without further actions, and a job ends only once."""

from datetime import timedelta

from history_replay import act, build_world
from hypothesis import given
from hypothesis import strategies as st
from stored_world import World, is_terminating

from backend_plugin.embedded.operators.base import Create, JobSnapshot
from backend_plugin.embedded.operators.pytorchjob.reconciler import reconcile

# Limits, deletions, replacements and the final condition may each take one pass.
MOST_PASSES = 8
STEPS = 8
POLICIES = st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"])


def roles():
    template = st.just({"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}})
    master = st.fixed_dictionaries({"replicas": st.just(1), "restartPolicy": POLICIES, "template": template})
    worker = st.fixed_dictionaries(
        {"replicas": st.integers(1, 4), "restartPolicy": POLICIES, "template": template}
    )
    some = st.fixed_dictionaries({"Worker": worker}, optional={"Master": master})
    return some | st.fixed_dictionaries({"Master": master})


def seldom(values):
    """Return a strategy that mostly gives None: a limit ends a job, and then less can be observed."""
    return st.sampled_from([None, None, None, *values])


@st.composite
def run_policies(draw: st.DrawFn):
    policy = {
        "cleanPodPolicy": draw(st.sampled_from(["None", "Running", "All"])),
        "backoffLimit": draw(seldom([0, 1, 3])),
        "activeDeadlineSeconds": draw(seldom([0, 30])),
        "ttlSecondsAfterFinished": draw(seldom([0, 30])),
        "suspend": draw(seldom([True])),
    }
    return {key: value for key, value in policy.items() if value is not None}


@st.composite
def specs(draw: st.DrawFn):
    spec = {"pytorchReplicaSpecs": draw(roles()), "runPolicy": draw(run_policies())}
    if "Worker" in spec["pytorchReplicaSpecs"] and draw(st.booleans()):
        spec["elasticPolicy"] = {}
    return spec


@st.composite
def happenings(draw: st.DrawFn, world: World):
    """Draw one event that may happen to a job and its current pods."""
    pods = [name.removeprefix("job-") for name in sorted(world.pods)]
    services = [name.removeprefix("job-") for name in sorted(world.services)]
    kinds = [
        an("reap"),
        an("resume" if is_suspended(world) else "suspend"),
        an("dying", exit=st.sampled_from([0, 143])),
        an("wait", seconds=st.sampled_from([0.4, 20, 40])),
    ]
    if "Worker" in world.spec["spec"]["pytorchReplicaSpecs"]:
        kinds += [an("scale", replicas=st.sampled_from([1, 2, 4]), via=st.just("spec"))] * 2
    if pods:
        some = st.lists(st.sampled_from(pods), min_size=1, unique=True)
        changes = some.flatmap(lambda each: st.tuples(*(reports(pod) for pod in each))).map(list)
        kinds += [an("pods", set=changes)] * 8 + [an("delete_pod", pod=st.sampled_from(pods))]
    if services:
        kinds.append(an("delete_service", service=st.sampled_from(services)))
    return draw(draw(st.sampled_from(kinds)))


def an(op, **fields):
    return st.fixed_dictionaries({"op": st.just(op), **fields})


def reports(pod):
    """Return a strategy for the pod status that a kubelet reports: mostly running or terminated."""
    running = {"phase": "Running"}
    ended = [
        {"phase": "Succeeded", "exit": 0},
        {"phase": "Failed", "exit": 1},
        {"phase": "Failed", "exit": 137},
    ]
    unknown = {"phase": "Unknown", "containers": False}
    statuses = [running, running, running, {**running, "restarts": 1}, *ended, unknown]
    return st.sampled_from([{"pod": pod, **each} for each in statuses])


def is_suspended(world):
    return world.job is not None and bool(world.job["spec"]["runPolicy"].get("suspend"))


def run_controller(world):
    assert world.job is not None
    pods, services = list(world.pods.values()), list(world.services.values())
    return reconcile(JobSnapshot(job=world.job, pods=pods, services=services, now=world.now))


def passes(world):
    """Yield passes until no action is left."""
    for _ in range(MOST_PASSES):
        if world.job is None:
            return
        step = run_controller(world)
        if not step.actions and step.status is None:
            assert step.wake_at is None or step.wake_at > world.now, "it would wake without a pause, for ever"
            later = run_controller(world.copy(now=world.now + timedelta(seconds=2)))
            assert step.wake_at is not None or (later.actions, later.status) == ((), None)
            return
        yield step
        for action in step.actions:
            act(world, action)
        if step.status is not None and world.job is not None:
            world.put_status(step.status)
    raise AssertionError("it does not come to rest")


def ends(world):
    status = (world.job or {}).get("status", {})
    kinds = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
    return {kind: status.get("completionTime") for kind in sorted(kinds & {"Succeeded", "Failed"})}


def begun(spec, *, bound):
    world = build_world({"name": "job", "labels": {}, "annotations": {}, "spec": spec, "bound": bound})
    world.do({"op": "create"})
    assert world.refused == ()
    return world


@given(specs(), st.booleans(), st.data())
def test_job_reaches_a_stable_state_and_ends_once(spec, bound, data):
    world = begun(spec, bound=bound)
    for _ in range(STEPS):
        before, made = ends(world), set()
        for wanted in passes(world):
            created = [each.manifest for each in wanted.actions if isinstance(each, Create)]
            made |= {each["metadata"]["name"] for each in created if each["kind"] == "Pod"}
            # A terminal condition and its time do not change.
            assert not before or world.job is None or ends(world) == before
            before = ends(world)
        if world.job is None:
            return
        over = ends(world)
        assert len(over) <= 1
        assert None not in over.values()
        # A created pod exists, unless the job has ended in the meantime.
        assert over or made <= set(world.pods)
        world.now += timedelta(seconds=1)
        world.do(data.draw(happenings(world)))


@given(specs(), st.data())
def test_active_job_has_a_pod_for_each_replica(spec, data):
    """Check a job that is neither terminal nor suspended, after terminating pods are removed."""
    world = begun(spec, bound=True)
    for _ in range(STEPS):
        list(passes(world))
        world.do(data.draw(happenings(world)))
    # A failed pod may have to be deleted first.
    for _ in range(2):
        list(passes(world))
        world.do({"op": "reap"})
    list(passes(world))
    if world.job is None or ends(world) or is_suspended(world):
        return
    roles = world.job["spec"]["pytorchReplicaSpecs"]
    places = {
        f"job-{role.lower()}-{index}" for role, each in roles.items() for index in range(each["replicas"])
    }
    assert {name for name, pod in world.pods.items() if not is_terminating(pod)} == places
    assert set(world.services) == places
