"""Companion objects are created after the job, recreated if missing, and reported if that fails."""

import asyncio
import json

import pytest
from kube_server import GROUPS, Fault
from kube_world import JOBS, POD_GROUPS, WITH_POD_GROUPS, Playing, connected
from serving import NAMESPACE
from tiny_service import code_of, wait_until


@pytest.fixture
def server(server):
    server.groups[POD_GROUPS[0]] = {POD_GROUPS[1]: "v1alpha1"}
    return server


@pytest.fixture
def here(server, tmp_path):
    return connected(server, tmp_path, WITH_POD_GROUPS)


def creations(server):
    return [each["kind"] for each in server.bodies if "kind" in each and each["kind"] != "DeleteOptions"]


async def create_group(server, here):
    """Create a job; return it, its pod group and its reference when the server has observed the group."""
    meta = await here.create(workers=4)
    (entry,), (group,) = here.cache, server.list_objects("podgroups")
    await wait_until(lambda: bool(entry.pod_groups))
    return entry, group, meta


async def test_job_is_created_first_and_owns_its_pod_group(server, here):
    await here.create(workers=4)
    (job,), (group,) = server.list_objects("pytorchjobs"), server.list_objects("podgroups")
    assert creations(server)[:2] == ["PyTorchJob", "PodGroup"]
    (owner,) = group["metadata"]["ownerReferences"]
    assert owner["uid"] == job["metadata"]["uid"]
    assert group["metadata"]["name"] == job["metadata"]["name"]
    assert group["spec"] == {"minMember": 5, "minResources": {"cpu": "5", "memory": "5Gi"}}
    # A second call creates nothing.
    await here.create(workers=4)
    assert (len(server.list_objects("pytorchjobs")), len(server.list_objects("podgroups"))) == (1, 1)


async def test_next_server_creates_the_pod_group_after_an_interrupted_creation(server, tmp_path):
    server.faults.append(Fault(method="POST", path="podgroups", times=1_000, reset="before"))
    async with connected(server, tmp_path, WITH_POD_GROUPS) as here:
        await here.create(workers=4)  # The server continues the creation after the call.
        assert (len(server.list_objects("pytorchjobs")), server.list_objects("podgroups")) == (1, [])
    server.faults.clear()
    async with connected(server, tmp_path, WITH_POD_GROUPS):
        await wait_until(lambda: len(server.list_objects("podgroups")) == 1)  # Without any call.


async def test_deleted_pod_group_is_recreated_until_the_job_ends(server, here):
    entry, group, _ = await create_group(server, here)
    uid = group["metadata"]["uid"]
    server.remove(POD_GROUPS, entry.name, NAMESPACE)
    await wait_until(lambda: any(each["metadata"]["uid"] != uid for each in server.list_objects("podgroups")))
    await wait_until(lambda: bool(entry.pod_groups))
    # After the job has ended, the group is deleted and not recreated.
    here.leave("outputs.pb")
    made = creations(server).count("PodGroup")
    Playing(server).becomes("Succeeded")
    await wait_until(lambda: server.list_objects("podgroups") == [])
    # A foreground deletion updates the group first, and only an update wakes waiting gangs.
    deletions = [each for each in server.bodies if each.get("kind") == "DeleteOptions"]
    assert [each["propagationPolicy"] for each in deletions] == ["Foreground"]
    await wait_until(lambda: not entry.pod_groups)
    await asyncio.sleep(0.2)
    assert (server.list_objects("podgroups"), creations(server).count("PodGroup")) == ([], made)


async def test_pod_group_of_a_trainjob_is_recreated_although_the_operator_creates_those_of_pytorchjobs(
    server, tmp_path
):
    server.groups["trainer.kubeflow.org"] = {"trainjobs": "v1alpha1", "trainingruntimes": "v1alpha1"}
    gang = {"scheduler": "coscheduling", "pod-groups-by": "operator"}
    async with connected(server, tmp_path, {"kfpytorch": {"dialect": "trainjob", "gang": gang}}) as here:
        entry, *_ = await create_group(server, here)
        server.remove(POD_GROUPS, entry.name, NAMESPACE)
        await wait_until(lambda: len(server.list_objects("podgroups")) == 1)


async def test_foreign_pod_group_with_the_same_name_is_reported(server, here):
    entry, group, meta = await create_group(server, here)
    theirs = {**group, "metadata": {"name": entry.name, "namespace": NAMESPACE}}
    server.remove(POD_GROUPS, entry.name, NAMESPACE)
    server.apply(POD_GROUPS, theirs)
    await wait_until(lambda: any(each.foreign for each in entry.pod_groups))
    assert "does not belong to it" in (await here.get(meta)).custom_info["notes"][0]


async def test_pod_deletion_does_not_wait_for_the_pod_group_deletion(server, here):
    server.forbidden.add("delete podgroups")
    await here.create(workers=4)
    play = Playing(server)
    play.pod("worker-0")
    await wait_until(lambda: any(entry.pods for entry in here.cache))
    play.becomes("Failed")
    stopped = f"DELETE /api/v1/namespaces/{NAMESPACE}/pods/{play.name}-worker-0"
    await wait_until(lambda: stopped in server.requests)


async def test_existing_job_is_kept_if_its_pod_group_cannot_be_created(server, here):
    await here.create(workers=4)
    server.forbidden.add("create podgroups")
    meta = await here.create(workers=4)
    await asyncio.sleep(0.2)
    assert len(server.list_objects("pytorchjobs")) == 1
    assert await here.phase(meta) != "FAILED"


@pytest.mark.parametrize("api_version", ["a/v1/namespaces/theirs/pytorchjobs/one?/x", "kubeflow.org/v1"])
async def test_edited_companions_annotation_causes_no_deletion(server, here, api_version):
    entry, *_ = await create_group(server, here)
    play = Playing(server)
    edited = json.dumps([{"apiVersion": api_version, "kind": "PodGroup", "spec": {}}])
    annotations = {**play.job["metadata"]["annotations"], "kfpytorch.flyte.org/companions": edited}
    play.becomes("Succeeded", annotations=annotations)
    await wait_until(lambda: entry.logged_phase is not None and entry.logged_phase.value == "SUCCEEDED")
    await asyncio.sleep(0.3)
    assert [each for each in server.requests if each.startswith("DELETE")] == []


async def test_pod_group_without_list_permission_is_not_recreated_for_each_change(server, here):
    server.forbidden |= {"list podgroups", "watch podgroups"}
    await here.create(workers=4)
    (entry,) = here.cache
    for annotation in ("a", "b"):
        patch = {"metadata": {"annotations": {annotation: "x"}}}
        key = (*JOBS, NAMESPACE, entry.name)
        server.do(lambda objects, key=key, patch=patch: objects.patch(key, patch))
        await wait_until(lambda a=annotation: entry.job is not None and a in entry.job.annotations)
        await asyncio.sleep(0.2)
    assert len(server.list_objects("podgroups")) == 1
    assert creations(server).count("PodGroup") <= 2  # One for the call and one for the concurrent pass.


FORBIDDEN = {"forbidden": {"create podgroups"}}
SLOW = {"faults": [Fault("POST", "podgroups", times=99, hang=0.6)]}
REFUSALS = {
    "forbidden": (FORBIDDEN, "resources: [podgroups], verbs: [create]}"),
    "forbidden by a slow server": ({**FORBIDDEN, **SLOW}, "resources: [podgroups], verbs: [create]}"),
    "no such kind": ({"groups": GROUPS}, "the cluster has no podgroups.scheduling.x-k8s.io"),
}


@pytest.mark.parametrize(("change", "message"), REFUSALS.values(), ids=REFUSALS)
async def test_failed_pod_group_creation_leaves_no_job_and_is_retryable(server, here, change, message):
    before = {name: getattr(server, name) for name in change}
    vars(server).update(change)
    code, details = await code_of(here.create(workers=4))
    assert (code.name, message in details) == ("UNAVAILABLE", True), details
    await wait_until(lambda: server.list_objects("pytorchjobs") == [])
    vars(server).update(before)
    await here.create(workers=4)
    assert len(server.list_objects("podgroups")) == 1


async def test_exceeded_quota_of_a_pod_group_returns_a_retryable_error(server, here):
    status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "exceeded quota: q"}
    server.faults.append(Fault("POST", "podgroups", code=403, status=status))
    assert (await code_of(here.create(workers=4)))[0].name == "RESOURCE_EXHAUSTED"
