"""Jobs of other attempts and of others: which are adopted, started and deleted."""

import asyncio
from datetime import datetime, timezone

import grpc
import pytest
from msgspec.json import encode
from serving import NAMESPACE, forged, is_phase, name_of, pod, ready_server, status, terminated
from tiny_service import code_of, is_answered, wait_until

from backend_plugin.core import job_ref
from backend_plugin.core.judging import verdict_annotation
from backend_plugin.core.signing import SigningKeys
from kfpytorch_common.causes import Cause


async def test_foreign_job_with_the_same_name_is_kept(served):
    name = name_of(await served.create())
    served.cluster.remove("PyTorchJob", NAMESPACE, name)
    served.cluster.deaf = True
    served.cluster.apply({"kind": "PyTorchJob", "metadata": {"name": name, "namespace": NAMESPACE}})
    assert f"metadata.name={name}" in (await served.get(await served.create())).message
    assert ("PyTorchJob", NAMESPACE, name) in served.cluster.objects


@pytest.mark.parametrize(
    ("fields", "away"),
    [
        ({"name": "foreign", "uid": "foreign"}, False),
        ({"name": "foreign", "uid": ""}, False),
        ({"output_prefix": "s3://elsewhere"}, False),
        ({"output_prefix": ""}, False),
        ({"uid": "another"}, False),
        ({"namespace": "kube-system"}, False),
        ({"name": "foreign", "uid": "foreign"}, True),
    ],
)
async def test_forged_reference_deletes_no_job(served, fields, *, away):
    meta = await served.create()
    mine = served.cluster.objects["PyTorchJob", NAMESPACE, name_of(meta)]
    served.cluster.apply({**mine, "metadata": {**mine["metadata"], "namespace": "kube-system"}})
    foreign = {"name": "foreign", "namespace": NAMESPACE, "uid": "foreign"}
    served.cluster.apply({"kind": "PyTorchJob", "metadata": foreign})
    for entry in served.cache:  # The server requests jobs from the cluster that are not in its cache.
        served.cache.forget(entry)
    before = dict(served.cluster.objects)
    served.cluster.away = away
    await served.delete(forged(meta, **fields))
    served.cluster.away = False
    await wait_until(lambda: len(served.orders) == 0)
    assert served.cluster.objects == before
    await served.delete(meta)
    await wait_until(lambda: ("PyTorchJob", NAMESPACE, name_of(meta)) not in served.cluster.objects)


async def test_job_with_a_recorded_timeout_is_deleted_only_if_it_is_ours(served):
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    verdict = verdict_annotation.RecordedVerdict(
        reason="OperatorTimeout", message="", cause=Cause.SYSTEM_ERROR, retry=True, at=at
    )
    stored = served.cluster.objects["PyTorchJob", NAMESPACE, name_of(await served.create())]
    recorded = {verdict_annotation.ANNOTATION: encode(verdict).decode()}
    given_up = {**stored["metadata"], "annotations": {**stored["metadata"]["annotations"], **recorded}}
    served.cluster.apply({**stored, "metadata": {**given_up, "labels": {}}})
    await wait_until(lambda: "get" in served.cluster.calls)
    await wait_until(lambda: len(served.orders) == 0)
    assert "delete" not in served.cluster.calls
    served.cluster.apply({**stored, "metadata": given_up})
    await wait_until(lambda: not served.cluster.objects)


async def test_new_attempt_deletes_the_job_of_the_previous_one_and_rejects_its_late_create(served):
    late, other = await served.create(), await served.create(execution="f2")
    second = await served.create(attempt=1)
    left = {name_of(second), name_of(other)}
    await wait_until(lambda: {key[2] for key in served.cluster.objects} == left)
    code, details = await code_of(served.create())
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "attempt 0 of f1/n0 is over: attempt 1 has begun" in details
    assert {key[2] for key in served.cluster.objects} == left
    assert await served.create(attempt=1) == second
    assert await served.phase(late) != "FAILED"


async def test_later_attempt_wins_if_two_are_created_concurrently(served):
    served.cluster.slow.clear()
    calls = [asyncio.create_task(served.create(attempt=attempt)) for attempt in (0, 1)]
    await wait_until(lambda: served.cluster.calls.count("create") == 2)
    served.cluster.slow.set()
    done, _ = await asyncio.wait(calls)
    assert len(done) == 2
    second = calls[1].result()
    await wait_until(lambda: {key[2] for key in served.cluster.objects} == {name_of(second)})


async def test_pod_without_the_job_as_owner_is_no_replica(served):
    meta = await served.create()
    name = served.run(meta)
    of_another = [{"kind": "PyTorchJob", "name": "f1", "uid": "of-another"}]
    for replica, owners in (("worker-1", of_another), ("worker-2", [])):
        stranger = pod(name, replica, "Failed", containerStatuses=terminated(1))
        stranger["metadata"]["ownerReferences"] = owners
        served.cluster.apply(stranger)
    served.cluster.write(f"{name}-worker-1", 1, "of a stranger")
    for second, text in enumerate("abc"):
        served.cluster.write(f"{name}-worker-0", second, text)
    assert await served.read_logs(meta) == ["worker-0: b", "worker-0: c"]
    served.cluster.status(name, status("Running", "Failed"))
    await wait_until(lambda: is_phase(served, meta, "RETRYABLE_FAILED"))
    assert "worker-1" not in (await served.get(meta)).message
    await wait_until(lambda: f"delete_pod {name}-worker-0" in served.cluster.calls)
    await wait_until(lambda: len(served.orders) == 0)
    strangers = {("Pod", NAMESPACE, f"{name}-worker-{index}") for index in (1, 2)}
    assert strangers <= served.cluster.objects.keys()


async def test_recreated_pod_is_not_stopped_in_place_of_the_old_one(served):
    name = name_of(await served.create())
    served.cluster.apply(pod(name, "master-0", "Failed", containerStatuses=terminated(1)))
    old = served.cluster.apply(pod(name, "worker-0", "Running"))
    served.cluster.deaf = True
    new = served.cluster.apply(pod(name, "worker-0", "Running"))
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    served.cluster.deaf = False
    served.cluster.status(name, status("Running", "Failed"))
    await wait_until(lambda: f"delete_pod {name}-worker-0" in served.cluster.calls)
    await wait_until(lambda: len(served.orders) == 0)
    assert served.cluster.objects["Pod", NAMESPACE, f"{name}-worker-0"] == new


async def test_reference_with_another_output_prefix_does_not_give_the_phase(served):
    assert await served.phase(forged(await served.create(), output_prefix="s3://elsewhere")) == "FAILED"


async def test_outputs_of_another_attempt_do_not_decide_the_phase_of_a_deleted_job(served):
    meta = await served.create()
    served.cluster.remove("PyTorchJob", NAMESPACE, name_of(meta))
    for entry in served.cache:
        served.cache.forget(entry)
    served.leave("outputs.pb", attempt=9)
    of_another = forged(meta, output_prefix=served.prefix(attempt=9))
    await wait_until(lambda: is_phase(served, of_another, "SUCCEEDED"))
    assert await served.phase(meta) == "FAILED"
    assert "belongs to another attempt" in (await served.get(meta)).message


OTHER_KEYS = SigningKeys(keys=(b"of somebody else",))


@pytest.mark.parametrize("keys", [None, OTHER_KEYS], ids=["unsigned", "signed by others"])
async def test_reference_without_a_valid_signature_is_rejected(served, keys):
    meta = await served.create()
    made = job_ref.encode(job_ref.decode(meta), keys)
    for call in (served.get, served.delete, served.read_logs):
        assert (await code_of(call(made)))[0] is grpc.StatusCode.PERMISSION_DENIED
    assert ("PyTorchJob", NAMESPACE, name_of(meta)) in served.cluster.objects


async def test_accepted_reference_is_rejected_after_its_key_was_removed(tmp_path):
    file, old, new = tmp_path / "keys", "a" * 32, "b" * 32
    file.write_text(old)
    async with ready_server(tmp_path, signing_keys_file=file) as served:
        meta = await served.create()
        await served.get(meta)
        file.write_text(f"{new}\n{old}")

        async def is_reloaded():
            return await served.create() != meta

        await wait_until(is_reloaded)
        await served.get(meta)
        file.write_text(new)

        async def is_rejected():
            return not await is_answered(served.get(meta))

        await wait_until(is_rejected)
        assert (await code_of(served.get(meta)))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_large_reference_is_not_kept_in_memory(served):
    meta = await served.create()
    await served.get(meta)
    await served.get(forged(meta, name="n" * 5_000))
    assert served.tasks._require_served_short.cache_info().currsize == 1


@pytest.mark.parametrize("fields", [{"namespace": "kube-system"}, {"output_prefix": "/etc"}])
async def test_reference_outside_the_allowlist_is_rejected(served, fields):
    elsewhere = forged(await served.create(), **fields)
    for call in (served.get, served.read_logs):
        assert (await code_of(call(elsewhere)))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_edited_output_prefix_annotation_causes_no_file_read(served):
    victim, mine = await served.create(), await served.create(execution="f2")
    served.leave("error.pb", b"not for everybody")
    name = name_of(mine)
    stored = served.cluster.objects["PyTorchJob", NAMESPACE, name]
    prefix = {"kfpytorch.flyte.org/output-prefix": served.prefix()}
    metadata = {**stored["metadata"], "annotations": {**stored["metadata"]["annotations"], **prefix}}
    served.cluster.apply({**stored, "metadata": metadata, "status": status("Running", "Failed")})
    entry, own = (served.cache.get((NAMESPACE, each)) for each in (name, name_of(victim)))
    await wait_until(lambda: entry.read)
    assert (entry.error_files, entry.outputs) == ((), None)
    served.cluster.status(name_of(victim), status("Running", "Failed"))
    await wait_until(lambda: own.read)
    assert own.error_files
