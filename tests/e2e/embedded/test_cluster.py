"""Jobs in an embedded cluster with real processes, from the manifest to the end."""

import json

import pytest

from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.observed import Pod, PodGroup
from backend_plugin.core.scheduling import companions
from backend_plugin.shell.cluster import AlreadyExists, ObjectName
from e2e.embedded.emulated import OURS, cpus, job, lines, named, role

# Runs until its file appears, so that a test controls the end.
WAIT = "while ! [ -e {} ]; do sleep 0.02; done"


async def test_job_with_master_and_workers_succeeds(state, cluster, recorded):
    # Workers start when the name of their master resolves.
    master = role(f"{WAIT.format(state / 'go')}; echo I am $RANK of $WORLD_SIZE")
    created = await cluster.create(job(Master=master, Worker=role("echo I am $RANK", 2)))
    await recorded.phase("Succeeded", "j-worker-0", "j-worker-1")
    (state / "go").touch()
    await recorded.state("Succeeded")
    assert created["metadata"]["uid"] == recorded.job().uid
    assert (await cluster.get(named()))["metadata"]["uid"] == recorded.job().uid
    assert recorded.states() == {"Created": True, "Running": False, "Succeeded": True}
    logs = [await lines(cluster, pod) for pod in ("j-master-0", "j-worker-0", "j-worker-1")]
    assert logs == [["I am 0 of 3"], ["I am 1"], ["I am 2"]]
    nodes = {each.message.rpartition(" ")[2] for each in recorded.events("Scheduled")}
    assert nodes == {"node-1", "node-2"}


async def test_listed_pods_of_a_job_equal_the_watched_pods(state, cluster, recorded):
    master = role(f"{WAIT.format(state / 'go')}; exit 3")
    await cluster.create(job(Master=master, Worker=role("sleep 60")))
    await cluster.create(job("other", Master=role("sleep 60")))
    await recorded.phase("Running", "j-worker-0", "other-master-0")
    (state / "go").touch()
    await recorded.state("Failed")
    found = {pod.name: pod for pod in await cluster.list_pods(named())}
    latest = {each.name: each for each in recorded.changes if isinstance(each, Pod)}
    assert found == {name: latest[name] for name in ("j-master-0", "j-worker-0")}
    assert found["j-master-0"].primary.ended.exit_code == 3
    assert await cluster.list_pods(named("x")) == []


@pytest.mark.parametrize("options", [{"capacity": {"cpu": "1"}}])
async def test_failed_job_stays_failed_after_its_pods_are_deleted(cluster, recorded):
    # The pods that do not fit are deleted immediately, as is the failed one, from which the failure follows.
    many = role("exit 200", 400, "ExitCode", resources=cpus("1"))
    await cluster.create(job(Worker=many, run_policy={"backoffLimit": 1}))
    await recorded.state("Failed")
    await recorded.wait_until(lambda: not recorded.pods)
    assert len(recorded.events("SuccessfulCreatePod")) == 400


async def test_finished_job_and_its_pods_are_deleted_after_the_ttl(cluster, recorded):
    await cluster.create(job(Worker=role("exit 0"), run_policy={"ttlSecondsAfterFinished": 1}))
    await recorded.state("Succeeded")
    await recorded.wait_until(lambda: recorded.job() is None and not recorded.pods)
    assert await cluster.get(named()) is None


async def test_job_is_suspended_and_resumed(cluster, recorded):
    await cluster.create(job(Worker=role("exec sleep 60", 2)))
    await recorded.state("Running")
    before = {each.uid for each in recorded.pods.values()}
    await cluster.patch(named(), {"spec": {"runPolicy": {"suspend": True}}})
    await recorded.state("Suspended")
    await recorded.wait_until(lambda: not recorded.pods)
    await cluster.patch(named(), {"spec": {"runPolicy": {"suspend": False}}})
    await recorded.phase("Running", "j-worker-0", "j-worker-1")
    await recorded.state("Running")
    assert not before & {each.uid for each in recorded.pods.values()}
    assert (await cluster.get(named()))["metadata"]["generation"] == 3


@pytest.mark.parametrize("options", [{"capacity": {"cpu": "1"}}])
async def test_pod_waits_with_a_reason_until_capacity_is_free(cluster, recorded):
    await cluster.create(job(Worker=role("sleep 60", 2, resources=cpus("1"))))
    await recorded.phase("Running", "j-worker-0", "j-worker-1")
    await cluster.create(job("late", Worker=role("exit 0", resources=cpus("600m"))))
    waits = await recorded.scheduled("late-worker-0")
    assert (waits.true, waits.reason) == (False, "Unschedulable")
    assert waits.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert recorded.pod("late-worker-0").phase == "Pending"
    assert [each.message for each in recorded.events("FailedScheduling")] == [waits.message]
    await cluster.delete(named())
    await recorded.state("Succeeded", "late")


async def test_job_name_is_unique_while_the_first_job_terminates(state, cluster, recorded):
    begun = state / "begun"
    slow = role(f"trap 'sleep 0.5; exit 0' TERM; touch {begun}; sleep 60 & wait")
    first = await cluster.create(job(Worker=slow))
    with pytest.raises(AlreadyExists):
        await cluster.create(job(Worker=slow))
    await recorded.wait_until(begun.exists)
    await cluster.delete(named())
    await cluster.create(job(Worker=role("exit 0")))
    assert await cluster.get(named()) != first
    # The pod waits until the name is free, as in a real cluster.
    await recorded.wait_until(lambda: recorded.events("FailedCreatePod"))
    await recorded.state("Succeeded")


async def test_object_names_with_another_uid_have_no_effect(cluster, recorded):
    await cluster.create(job(Worker=role("exec sleep 60")))
    await recorded.phase("Running", "j-worker-0")
    other = ObjectName(namespace="a", name="j", uid="another")
    await cluster.delete(other)
    await cluster.patch(other, {"spec": {"runPolicy": {"suspend": True}}})
    await cluster.delete_pod(ObjectName(namespace="a", name="j-worker-0", uid="another"))
    assert await cluster.get(other) is None
    assert await lines(cluster, "nobody") == []
    assert recorded.phases == {"j-worker-0": "Running"}
    assert recorded.states() == {"Created": True, "Running": True}


@pytest.mark.parametrize("options", [{"capacity": {"nvidia.com/gpu": "2"}}])
async def test_each_pod_has_its_own_gpus(cluster, recorded):
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    await cluster.create(job(Worker=role("echo $CUDA_VISIBLE_DEVICES", 3, resources=gpu)))
    await recorded.state("Succeeded")
    devices = [await lines(cluster, f"j-worker-{index}") for index in range(3)]
    assert sorted(devices) == [["0"], ["1"], ["2"]]


def with_group(made):
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 2}}
    annotations = {companions.ANNOTATION: json.dumps([group])}
    metadata = {**made["metadata"], "annotations": annotations}
    (manifest,) = companions.read_companions(read_job({**made, "metadata": metadata}))
    return manifest


async def test_pod_group_is_stored_and_deleted_with_its_job(cluster, recorded):
    group = with_group(await cluster.create(job(Worker=role("sleep 60", replicas=2))))
    assert group["metadata"]["labels"][OURS]
    await cluster.create(group)
    with pytest.raises(AlreadyExists):
        await cluster.create(group)
    await recorded.wait_until(lambda: recorded.records[PodGroup])
    # No gang scheduler reads the pod group, so the pods are scheduled one at a time.
    await recorded.phase("Running", "j-worker-0", "j-worker-1")
    await cluster.delete(named())
    await recorded.wait_until(lambda: not recorded.records[PodGroup])
    again = await cluster.create(job("k", Worker=role("sleep 60")))
    await cluster.create(with_group(again))
    await cluster.delete_companion(with_group(again))
    await cluster.delete_companion(with_group(again))
    assert not recorded.records[PodGroup]


async def test_recorded_job_event_is_watched_only_for_the_matching_uid(cluster, recorded):
    made = await cluster.create(job(Worker=role("sleep 60")))
    about = {"kind": "PyTorchJob", "namespace": "a", "name": "j", "uid": made["metadata"]["uid"]}
    fields = {"reason": "Resumed", "message": "1 of 1 replicas ready", "type": "Normal"}
    await cluster.record_event({**fields, "involvedObject": about})
    # A later job of the same name has another uid.
    await cluster.record_event({**fields, "involvedObject": {**about, "uid": "other"}})
    (event,) = await recorded.wait_until(lambda: recorded.events("Resumed"))
    assert (event.kind, event.name, event.message) == ("PyTorchJob", "j", fields["message"])
