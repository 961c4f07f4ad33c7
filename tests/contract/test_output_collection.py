"""Reading the pods of a failed job from the cluster, and changes that arrive in the meantime."""

from datetime import datetime, timezone

import pytest
from serving import NAMESPACE, is_phase, name_of, pod, status, terminated
from tiny_service import wait_until

from backend_plugin.core import cleanup
from backend_plugin.core.judging.verdict_annotation import ANNOTATION, encode
from backend_plugin.core.names import PLACE, PLACE_OF
from backend_plugin.shell.cluster import Misconfigured


def failed(job, replica, code):
    return pod(job, replica, "Failed", containerStatuses=terminated(code))


async def create_job(served):
    """Let a job fail while its pods run, and return while the request for its pods is pending."""
    meta = await served.create()
    name = served.run(meta)
    served.cluster.late.clear()
    served.cluster.status(name, status("Failed"))
    await wait_until(lambda: "pods" in served.cluster.calls)
    return meta, name


def phases(served):
    return {each.replica: each.phase for entry in served.cache for each in entry.pods}


async def answered(served):
    served.cluster.late.set()
    await wait_until(lambda: all(entry.read for entry in served.cache))
    assert served.cluster.calls.count("pods") == 1


async def test_watch_event_during_a_pod_list_is_newer_than_the_list(served):
    meta, name = await create_job(served)
    served.cluster.apply(failed(name, "worker-0", 3))
    await answered(served)
    assert phases(served) == {"master-0": "Running", "worker-0": "Failed"}
    await wait_until(lambda: is_phase(served, meta, "FAILED"))


async def test_pod_deleted_during_a_pod_list_stays_deleted(served):
    _, name = await create_job(served)
    served.cluster.remove("Pod", NAMESPACE, f"{name}-worker-0")
    await answered(served)
    assert phases(served) == {"master-0": "Running"}


async def test_pod_list_adds_unobserved_pods_and_removes_deleted_ones(served):
    meta = await served.create()
    name = name_of(meta)
    served.cluster.apply(pod(name, "master-0", "Running"))
    served.cluster.deaf = True
    served.cluster.remove("Pod", NAMESPACE, f"{name}-master-0")
    served.cluster.apply(failed(name, "worker-0", 3))
    served.cluster.deaf = False
    served.cluster.status(name, status("Failed"))
    await answered(served)
    assert phases(served) == {"worker-0": "Failed"}
    await wait_until(lambda: is_phase(served, meta, "FAILED"))


async def test_placeholder_pod_is_kept_after_a_pod_list(served):
    meta = await served.create()
    labels = {PLACE_OF: name_of(meta), PLACE: "worker"}
    metadata = {"name": "place-0", "namespace": NAMESPACE, "labels": labels}
    served.cluster.apply({"kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}})
    served.cluster.status(name_of(meta), status("Failed"))
    await answered(served)
    assert [each.name for entry in served.cache for each in entry.pods] == ["place-0"]


async def test_known_pods_are_kept_if_pods_cannot_be_listed(served):
    served.cluster.blind = True
    await create_job(served)
    await answered(served)
    assert phases(served) == {"master-0": "Running", "worker-0": "Running"}


async def test_server_that_stops_during_a_pod_list_reports_no_end(served):
    meta, _ = await create_job(served)
    await served.orders.drain(0)
    assert (len(served.orders), [entry.read for entry in served.cache]) == (0, [False])
    assert await served.phase(meta) == "RUNNING"


async def test_pod_list_does_not_apply_to_a_later_job_with_the_same_name(served):
    _, name = await create_job(served)
    job = served.cluster.objects["PyTorchJob", NAMESPACE, name]
    served.cluster.apply({**job, "metadata": {**job["metadata"], "uid": "another"}, "status": {}})
    served.cluster.late.set()
    await wait_until(lambda: len(served.orders) == 0)
    assert phases(served) == {}


async def test_unfinished_pods_of_a_succeeded_job_are_deleted_even_if_created_later(served):
    meta = await served.create()
    name = name_of(meta)
    served.cluster.apply(pod(name, "master-0", "Succeeded", containerStatuses=terminated(0)))
    served.cluster.apply(pod(name, "worker-0", "Pending"))
    served.cluster.status(name, status("Running", "Succeeded"))
    await wait_until(lambda: is_phase(served, meta, "SUCCEEDED"))
    await wait_until(lambda: [*phases(served)] == ["master-0"])
    # The operator, or an autoscaler, may create a pod after the job has succeeded.
    served.cluster.apply(pod(name, "worker-1", "Pending"))
    await wait_until(lambda: f"delete_pod {name}-worker-1" in served.cluster.calls)
    await wait_until(lambda: [*phases(served)] == ["master-0"])


async def test_reads_for_jobs_removed_from_the_cache_are_cancelled(served):
    for number in range(2_100):
        served.cache.add_missing_job((NAMESPACE, f"gone-{number}"), served.prefix(execution=f"e{number}"))
    assert len(served.cache) == served.orders.count_running("read_outputs") == 2_000
    await wait_until(lambda: served.orders.count_running("read_outputs") == 0)
    assert all(entry.read for entry in served.cache)


@pytest.mark.parametrize("refusal", [None, Misconfigured("no permission")], ids=["stopped", "refused"])
async def test_cancelled_job_has_its_pods_stopped_or_gets_a_deadline(served, refusal):
    name = name_of(await served.create())
    served.cluster.may_not_stop = refusal
    served.cluster.apply(pod(name, "master-0", "Running"))
    job = served.cluster.apply(served.cluster.objects["PyTorchJob", NAMESPACE, name])
    verdict = cleanup.build_cancellation("no use")
    job["metadata"]["annotations"][ANNOTATION] = encode(verdict, datetime.now(timezone.utc))
    served.cluster.apply({**job, "status": {**status("Running"), "startTime": "2026-01-01T00:00:00Z"}})
    await wait_until(lambda: f"stop_pod {name}-master-0" in served.cluster.calls)
    await wait_until(lambda: len(served.orders) == 0)
    policy = served.cluster.objects["PyTorchJob", NAMESPACE, name]["spec"]["runPolicy"]
    ended = (phases(served), policy.get("activeDeadlineSeconds"))
    assert ended == (({"master-0": "Failed"}, None) if refusal is None else ({"master-0": "Running"}, 1))
