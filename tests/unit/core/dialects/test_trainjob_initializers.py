"""Tests of the initializers of a TrainJob: manifests, rejections, and the state that their pods show."""

from datetime import timedelta

import pytest
import train_job_objects as trainjobs
from builders import reject

from backend_plugin.core import job_lookup
from backend_plugin.core.dialects.table import parse_job_name
from backend_plugin.core.job import Deadlines
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.judging.verdict import Phase, Verdict
from backend_plugin.core.pipeline import judge
from backend_plugin.core.reading import parse_time
from backend_plugin.core.settings.judging import JudgingSettings
from kfpytorch_common.causes import Cause

DATASET = {"uri": "s3://data/digits", "secret": "s3", "env": {"REGION": "eu"}}
MODEL = {"uri": "hf://owner/model"}
SIZE = {"size": "50Gi"}
BOTH = {"dataset": DATASET, "model": MODEL, "storage": SIZE}
MOUNTS = [{"name": "v", "mountPath": path} for path in ("/v", "/workspace/dataset/")]
MOUNTING = {
    "volumes": [{"name": "v", "emptyDir": {}}],
    "containers": [{"name": "primary", "volumeMounts": MOUNTS}],
}


def plan_with_data(options, replicas=trainjobs.REPLICAS, pod=None, **fields):
    roles = {} if pod is None else {key: {"podTemplate": {"spec": pod}} for key in ("master", "worker")}
    return trainjobs.plan_train_job({**replicas, "kfpytorch": {**roles, "trainJob": options}}, **fields)


def list_problems(options, **fields) -> list[tuple[str, str]]:
    problems = reject(plan_with_data, options, **fields)
    return [(each.field.removeprefix("custom.kfpytorch.trainJob."), each.value) for each in problems]


def test_job_name_leaves_room_for_the_pod_names_of_initializers():
    name = "f" + 40 * "x"
    for options, longest in ((BOTH, 33), ({"runtime": "r"}, 44)):
        job = plan_with_data(options, run={"execution": name}).job["metadata"]["name"]
        assert len(job) == longest
        pod = f"{job}-dataset-initializer-0-0-abcde"
        assert (len(pod) <= 63) == (options is BOTH)
        assert parse_job_name(pod) == job


def test_volume_of_one_node_is_not_shared():
    planned = plan_with_data(BOTH, {"masterReplicas": {"replicas": 1}})
    (policy,) = trainjobs.get_jobset(planned)["volumeClaimPolicies"]
    (claim,) = policy["templates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_initializer_has_image_service_account_and_annotations_of_the_platform_and_the_run():
    ours = {"dataset-initializer-image": "mirror/dataset:1", "model-initializer-image": "mirror/model:1"}
    run = {"service_account": "trainer", "annotations": {"sidecar.istio.io/inject": "false"}}
    jobs = trainjobs.get_jobset(plan_with_data(BOTH, ours=ours, run=run))["replicatedJobs"]
    pods = [each["template"]["spec"]["template"] for each in jobs[:2]]
    assert [each["spec"]["containers"][0]["image"] for each in pods] == ["mirror/dataset:1", "mirror/model:1"]
    for pod in pods:
        assert pod["spec"]["serviceAccountName"] == "trainer"
        assert pod["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}


def with_model(**fields):
    return {"model": {**MODEL, **fields}, "storage": SIZE}


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"dataset": MODEL}, "storage", "null"),
        ({"storage": SIZE}, "storage", '"{...}"'),
        ({"runtime": "r", "dataset": MODEL, "storage": SIZE}, "storage", '"{...}"'),
        ({"dataset": MODEL, "storage": {}}, "storage.size", '""'),
        ({"dataset": MODEL, "storage": {"size": "much"}}, "storage.size", '"much"'),
        ({"dataset": MODEL, "storage": {"size": "0"}}, "storage.size", '"0"'),
        ({"dataset": MODEL, "storage": {"claim": "A b"}}, "storage.claim", '"A b"'),
        ({"dataset": MODEL, "storage": {"claim": "a", "storageClass": "b"}}, "storage.storageClass", '"b"'),
        *(
            ({"dataset": {"uri": uri}, "storage": SIZE}, "dataset.uri", f'"{uri}"')
            for uri in ("hf://one", "digits", "s3://B")
        ),
        ({"model": {"uri": "cache://a/b"}, "runtime": "r"}, "model.uri", '"cache://a/b"'),
        (with_model(env={f"V{each}": "" for each in range(128)}), "model.env", "128"),
        (with_model(env={"A B": ""}), "model.env", '"A B"'),
        (with_model(env={"X": "hf_" + 30 * "a"}), "model.env", '"X"'),
    ],
)
def test_invalid_source_or_storage_is_rejected(options, field, value):
    assert list_problems(options) == [(field, value)]


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        ({"volumes": [{"name": "initializer", "emptyDir": {}}], "containers": []}, "volumes[0].name"),
        (MOUNTING, "containers[node].volumeMounts"),
    ],
)
def test_pod_that_uses_the_volume_or_its_directory_is_rejected(pod, field):
    ((found, _),) = list_problems({"dataset": DATASET, "storage": SIZE}, pod=pod)
    assert found == f"pod.spec.{field}"


def build_data_job(*conditions):
    job = trainjobs.build_job(*conditions)
    job["spec"]["initializer"] = {"dataset": {"storageUri": "hf://a/b"}, "model": {"storageUri": "hf://c/d"}}
    job["status"]["jobsStatus"] = [{"name": "dataset-initializer"}]
    return job


def as_initializer(pod, role: str = "dataset-initializer"):
    pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = role
    pod["metadata"]["name"] = pod["metadata"]["name"].replace("node", role)
    for part in (pod["spec"]["containers"], pod["status"]["containerStatuses"]):
        for each in part:
            each["name"] = role
    return pod


def judge_at(seconds: float, job, *pods, deadlines=None, **more) -> Verdict:
    rules = JudgingContext(judging=JudgingSettings(**more), deadlines=deadlines or Deadlines())
    return judge(trainjobs.observe(job, *pods), rules, parse_time(trainjobs.at(seconds)))


def test_initializer_is_found_by_its_name():
    job = trainjobs.observe(build_data_job()).job
    assert job_lookup.require_replica(job, "model-initializer-0") == "model-initializer-0"
    assert job_lookup.find_replica_ranks(job, "model-initializer", 0) is None
    assert job_lookup.list_replicas(job) == ["node-0", "node-1"]


def test_long_download_exceeds_no_timeout():
    loading = as_initializer(trainjobs.build_running(0))
    limits = {"pending_timeout": timedelta(minutes=1), "no_status_timeout": timedelta(minutes=1)}
    assert judge_at(100_000, build_data_job(), loading, **limits).phase is Phase.INITIALIZING


def mark_unschedulable(pod):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    return {**pod, "status": {**pod["status"], "conditions": [condition]}}


def test_initializer_without_a_node_waits_for_resources():
    verdict = judge_at(20, build_data_job(), mark_unschedulable(as_initializer(trainjobs.build_pod(0))))
    assert (verdict.phase, verdict.cause) == (Phase.WAITING_FOR_RESOURCES, Cause.UNSCHEDULABLE)


@pytest.mark.parametrize(("seconds", "over"), [(90 + 50, False), (90 + 70, True)])
def test_queue_timeout_starts_after_the_download(seconds, over):
    done = as_initializer(trainjobs.build_ended(0, finished=90))
    nodes = [mark_unschedulable(trainjobs.build_pod(index)) for index in (0, 1)]
    verdict = judge_at(seconds, build_data_job(), done, *nodes, deadlines=Deadlines(queue_seconds=60))
    assert verdict.phase.is_failure == over


def build_failed(message: str, code: int = 1, reason: str = "Error"):
    pod = as_initializer(trainjobs.build_ended(0, code))
    pod["status"]["containerStatuses"][0]["state"]["terminated"] |= {"message": message, "reason": reason}
    return pod


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (("RepositoryNotFoundError: 404 Client Error",), Cause.INVALID_CONFIG),
        (("503 Server Error: Service Unavailable",), Cause.SYSTEM_ERROR),
        (("Unexpected (temporary) at read",), Cause.SYSTEM_ERROR),
        (("", 137, "OOMKilled"), Cause.OOM_HOST),
    ],
)
def test_failure_message_names_the_initializer_and_its_cause(failure, cause):
    job = build_data_job(trainjobs.build_condition("Failed", reason="FailJobSetFailurePolicyAction"))
    done = as_initializer(trainjobs.build_ended(0), "model-initializer")
    verdict = judge_at(200, job, build_failed(*failure), done)
    assert verdict.cause is cause
    assert verdict.message.startswith("dataset-initializer-0 failed: ")
    assert failure[0] in verdict.message


def test_replaced_initializer_is_not_the_cause_of_a_later_failure():
    lost, done = build_failed("gone"), as_initializer(trainjobs.build_ended(0, created=20, suffix="bbbbb"))
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    lost["status"]["conditions"] = [disruption]
    again = as_initializer(trainjobs.build_running(0, created=20, suffix="b"))
    assert judge_at(20, build_data_job(), lost, again).phase is Phase.INITIALIZING
    job = build_data_job(trainjobs.build_condition("Failed", reason="FailedJobs"))
    verdict = judge_at(200, job, lost, done, trainjobs.build_ended(0, 1), trainjobs.build_ended(1, 1))
    assert verdict.message.startswith("node-0 failed")


def test_deleted_job_with_completed_initializers_is_a_retryable_failure():
    assert judge_at(200, None, as_initializer(trainjobs.build_ended(0))).phase is Phase.RETRYABLE_FAILED


@pytest.mark.parametrize("name", ["j-dataset-initializer-0", "j"])
def test_failure_of_an_initializer_is_not_a_restart(name):
    event = {"reason": "BackoffLimitExceeded", "involvedObject": {"kind": "Job", "name": name}}
    found = trainjobs.observe(build_data_job(), events=[event]).job
    assert any(each.type == "Restarting" for each in found.conditions) == (name == "j")
