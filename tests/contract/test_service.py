"""The responses that FlytePropeller gets over a real channel."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import grpc
import pytest
from scripted_cluster import ScriptedCluster, ago
from server_metrics import read_counts
from serving import NAMESPACE, Served, get_now, is_phase, name_of, pod, ready_server, serving, status
from tiny_service import code_of, wait_until

from backend_plugin.core import pipeline
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.errors import RequestRejected
from backend_plugin.core.job import OwnerReference
from backend_plugin.core.judging.verdict import Phase
from backend_plugin.shell import reconciler
from backend_plugin.shell.cluster import ClusterUnavailable, Misconfigured


async def test_concurrent_creates_of_one_attempt_create_one_job(served):
    metas = await asyncio.gather(*(served.create() for _ in range(8)))
    assert (len(set(metas)), [key[0] for key in served.cluster.objects]) == (1, ["PyTorchJob"])
    assert await served.phase(metas[0]) == "QUEUED"


async def test_job_in_deletion_is_not_adopted(served):
    """A job with finalizers is deleted later; after that, the same attempt can create one."""
    await served.create()
    ((key, made),) = served.cluster.objects.items()
    metadata = {**made["metadata"], "deletionTimestamp": ago(0)}
    served.cluster.objects[key] = {**made, "metadata": metadata}
    assert (await code_of(served.create()))[0] is grpc.StatusCode.UNAVAILABLE
    del served.cluster.objects[key]
    await served.create()


async def test_job_is_owned_by_the_workflow_of_its_execution(served):
    owner = OwnerReference(api_version="flyte.lyft.com/v1alpha1", kind="FlyteWorkflow", name="f1", uid="w")
    served.cluster.owners[NAMESPACE, "f1"] = owner
    await served.create()
    (job,) = served.cluster.objects.values()
    (reference,) = job["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"], reference["uid"]) == ("FlyteWorkflow", "f1", "w")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"output_prefix": "file:///etc"}, "output_prefix"),
        ({"namespace": "kube-system"}, "task_execution_metadata.namespace"),
        ({"namespace": ""}, "task_execution_metadata.namespace"),
    ],
)
async def test_task_outside_the_allowlists_is_rejected(served: Served, change: Any, word: str) -> None:
    meta = await served.create(**change)
    assert await served.phase(meta) == "FAILED"
    assert word in (await served.get(meta)).message
    assert served.cluster.calls == []


async def test_permanent_rejection_of_the_cluster_is_quoted_and_counted(served):
    served.cluster.refusal = RequestRejected(422, "Invalid", "spec: Required value")
    meta = await served.create()
    assert await served.phase(meta) == "FAILED"
    assert (await served.get(meta)).message.startswith("the cluster refuses the job (Invalid): ")
    assert read_counts(served.orders.metrics.creates) == {("rejected",): 1}


async def test_get_sends_no_request_to_the_cluster(served):
    meta = await served.create()
    served.run(meta)
    before = list(served.cluster.calls)
    served.cluster.away = True
    served.cluster.slow.clear()
    for _ in range(20):
        assert await served.phase(meta) == "RUNNING"
    assert served.cluster.calls == before


async def test_get_returns_the_last_response_if_a_phase_cannot_be_computed(served, monkeypatch):
    meta = await served.create()
    name = served.run(meta)
    assert await served.phase(meta) == "RUNNING"
    monkeypatch.setattr(pipeline, "judge_with_expiry", lambda *_: 1 / 0)  # A defect of the server.
    served.cluster.apply(pod(name, "worker-0", "Pending"))
    assert await served.phase(meta) == "RUNNING"


def began(seconds):
    return [{"name": "pytorch", "state": {"running": {"startedAt": ago(seconds)}}}]


async def test_deadline_ends_a_job_and_its_verdict_is_permanent(served):
    meta = await served.create(options={"runPolicy": {"activeDeadlineSeconds": 60}})
    name = served.run(meta, containerStatuses=began(90))
    await wait_until(lambda: is_phase(served, meta, "FAILED"))
    message = (await served.get(meta)).message
    await wait_until(lambda: "patch" in served.cluster.calls)
    stored = served.cluster.objects["PyTorchJob", NAMESPACE, name]
    assert stored["spec"]["runPolicy"]["activeDeadlineSeconds"] == 1
    for replica in ("master-0", "worker-0"):
        served.cluster.remove("Pod", NAMESPACE, f"{name}-{replica}")
    assert (await served.get(meta)).message == message
    assert served.cluster.calls.count("patch") == 1
    assert served.cluster.awaited == []  # The update is stored, so no call waits for it.
    await served.delete(meta)
    assert served.cluster.awaited == ["delete"]


async def test_deadline_ends_a_running_job_without_status_calls(tmp_path):
    clock, runs = [get_now()], {"containerStatuses": began(0)}
    async with serving(tmp_path, now=lambda: clock[0], seconds=1) as served:
        meta = await served.create(options={"runPolicy": {"activeDeadlineSeconds": 1800}})
        name = served.run(meta, **runs)
        (entry,) = served.cache
        await wait_until(lambda: entry.logged_phase is Phase.RUNNING)
        clock[0] += timedelta(minutes=20)
        served.cluster.apply(pod(name, "worker-0", "Running", **runs, hostIP="10.0.0.2"))
        await asyncio.sleep(1.5)  # More than a resync.
        assert "patch" not in served.cluster.calls
        clock[0] += timedelta(minutes=11)
        await wait_until(lambda: "patch" in served.cluster.calls)
        assert entry.logged_phase is Phase.FAILED


async def test_job_missing_from_a_relist_is_confirmed_before_it_is_reported_as_deleted(served):
    meta = await served.create()
    key = ("PyTorchJob", NAMESPACE, name_of(meta))
    stored = served.cluster.objects.pop(key)
    served.cluster.relist()
    served.cluster.objects[key] = stored
    await wait_until(lambda: "get" in served.cluster.calls)
    await wait_until(lambda: len(served.orders) == 0)
    assert await served.phase(meta) == "QUEUED"
    del served.cluster.objects[key]
    served.cluster.relist()
    await wait_until(lambda: is_phase(served, meta, "RETRYABLE_FAILED"))


async def test_job_observed_during_its_lookup_is_not_reported_as_missing(served):
    meta = await served.create()
    stored = served.cluster.objects.pop(("PyTorchJob", NAMESPACE, name_of(meta)))
    for entry in served.cache:
        served.cache.forget(entry)
    served.cluster.slow.clear()
    assert await served.phase(meta) == "QUEUED"
    await wait_until(lambda: "get" in served.cluster.calls)
    served.cache.put_record(NAMESPACE, read_job(stored))
    served.cluster.slow.set()
    await wait_until(lambda: len(served.orders) == 0)
    assert await served.phase(meta) == "QUEUED"


@pytest.mark.parametrize("how", ["made", "adopted", "looked for", "confirmed"])
async def test_late_response_does_not_override_a_watch_event(served, how):
    cluster = served.cluster
    meta = b"" if how == "made" else await served.create()
    if how == "looked for":
        for entry in served.cache:
            served.cache.forget(entry)
    cluster.calls.clear()
    cluster.late.clear()
    asked = None
    if how in ("made", "adopted"):
        asked = asyncio.create_task(served.create())
    elif how == "looked for":
        await served.get(meta)
    else:
        cluster.objects, kept = {}, cluster.objects
        cluster.relist()
        cluster.objects = kept
    await wait_until(lambda: ("create" if how == "made" else "get") in cluster.calls)
    ((_, _, name),) = cluster.objects
    served.leave("outputs.pb")
    cluster.status(name, status("Running", "Succeeded"))
    cluster.late.set()
    meta = await asked if asked else meta
    await wait_until(lambda: len(served.orders) == 0)
    assert await served.phase(meta) == "SUCCEEDED"


async def test_job_deleted_before_its_create_response_is_reported_as_deleted(served):
    served.cluster.late.clear()
    making = asyncio.create_task(served.create())
    await wait_until(lambda: len(served.cluster.objects) == 1)
    served.cluster.remove(*next(iter(served.cluster.objects)))
    served.cluster.late.set()
    meta = await making
    await wait_until(lambda: is_phase(served, meta, "RETRYABLE_FAILED"))


async def test_existing_jobs_are_logged_in_one_line_and_changes_in_one_each(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="backend_plugin.shell.reconciler")
    cluster = ScriptedCluster()
    async with ready_server(tmp_path, cluster=cluster) as served:
        for number in range(3):
            meta = await served.create(execution=f"f{number}")
            name = served.run(meta)
        await wait_until(lambda: str(list_reconciler_messages(caplog)).count("RUNNING: 2 of 2") == 3)
    caplog.clear()
    async with ready_server(tmp_path, cluster=cluster) as served:
        assert await served.phase(meta) == "RUNNING"
        await wait_until(lambda: any("existing" in line for line in list_reconciler_messages(caplog)))
        assert list_reconciler_messages(caplog) == ["existing jobs: 3 RUNNING"]
        cluster.apply(pod(name, "worker-0", "Failed"))
        cluster.status(name, status("Failed"))
        await wait_until(lambda: len(list_reconciler_messages(caplog)) > 1)
        assert list_reconciler_messages(caplog)[1].startswith("RETRYABLE_FAILED: ")


EVIL = "\x1b[31mred\x9b0m \u202egnp.exe\u202c \u2028next\x00"
SHOWN = r"\x1b[31mred\x9b0m \u202egnp.exe\u202c \u2028next\x00"


@pytest.mark.parametrize(
    ("error", "counted", "code"),
    [
        (ClusterUnavailable(EVIL), "ClusterUnavailable", "UNAVAILABLE"),
        (Misconfigured("cannot create pytorchjobs"), "Misconfigured", "UNAVAILABLE"),
        (RequestRejected(403, "Forbidden", f"{EVIL} exceeded quota"), "Forbidden", "RESOURCE_EXHAUSTED"),
    ],
    ids=["away", "no binding", "quota"],
)
async def test_transient_create_error_is_retryable_logged_and_counted(tmp_path, caplog, error, counted, code):
    caplog.set_level(logging.WARNING, logger="backend_plugin.shell.connector_service")
    async with ready_server(tmp_path) as served:
        served.cluster.refusal = error
        found, details = await code_of(served.create(execution="f7"))
        message = str(error).replace(EVIL, SHOWN)
        assert (found.name, message in details) == (code, True)
        metrics = served.orders.metrics
        assert read_counts(metrics.cluster_errors) == {("create_job", counted): 1}
        assert read_counts(metrics.creates) == {(code.lower(),): 1}
        served.cluster.refusal = None
        assert await served.phase(await served.create(execution="f7")) == "QUEUED"
    (line,) = [each for each in caplog.records if each.name == "backend_plugin.shell.connector_service"]
    assert (line.levelname, vars(line)["execution"]) == ("WARNING", "f7")
    assert message in line.getMessage()


def list_reconciler_messages(caplog):
    """Return the messages of this logger only, because other tests may enable other loggers."""
    return [record.getMessage() for record in caplog.records if record.name == reconciler.__name__]
