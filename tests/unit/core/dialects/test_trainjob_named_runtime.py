"""Tests of a TrainJob on a runtime of the cluster: its trainer, its patch, and rejected fields."""

import pytest
from builders import decoded
from builders import reject as list_problems
from msgspec import structs
from train_job_objects import ELASTIC, REPLICAS, plan_train_job

from backend_plugin.core.dialects.trainjob import DIALECT, named_runtime
from backend_plugin.core.runtimes import Runtime

RULE = {"action": "FailJob", "exitCodes": [1]}
RUNTIME = {"trainJob": {"runtime": "torch-distributed"}}
TERMINAL = {"containers": [{"name": "primary", "tty": True}]}


def plan_job(custom=REPLICAS, **part):
    """Return the TrainJob of a task whose master and workers have the same placement."""
    ours = {**RUNTIME, **({"master": part, "worker": part} if part else {})}
    planned = plan_train_job({**custom, "kfpytorch": ours})
    assert planned.prerequisites == ()
    return planned.job


def reject(custom=REPLICAS, **part) -> dict[str, str]:
    """Return the value of each rejected field."""
    return {each.field: each.value for each in list_problems(plan_job, custom, **part)}


def reject_options(**options) -> dict[str, str]:
    """Return the value of each rejected field of a task with these options of a TrainJob."""
    custom = {**REPLICAS, "kfpytorch": {"trainJob": options}}
    return {each.field: each.value for each in list_problems(plan_train_job, custom)}


def test_job_may_reference_a_runtime_of_its_namespace():
    extension = {"trainJob": {**RUNTIME["trainJob"], "runtimeKind": "TrainingRuntime"}}
    reference = plan_train_job({**REPLICAS, "kfpytorch": extension}).job["spec"]["runtimeRef"]
    assert (reference["kind"], reference["name"]) == ("TrainingRuntime", "torch-distributed")


def test_patch_has_the_volumes_of_the_pods():
    mounts = [{"name": "data", "mountPath": "/data"}]
    volumes = [{"name": "data", "emptyDir": {}}]
    containers = [{"name": "primary", "volumeMounts": mounts}]
    (patch,) = plan_job(podTemplate={"spec": {"volumes": volumes, "containers": containers}})["spec"][
        "runtimePatches"
    ]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    made = {"volumes": volumes, "containers": [{"name": "node", "volumeMounts": mounts}]}
    assert node["template"]["spec"]["template"]["spec"] == made


def test_node_range_is_rejected_with_a_named_runtime():
    assert reject(ELASTIC) == {"custom.elasticConfig": "2:4"}
    fixed = {**ELASTIC, "elasticConfig": {**ELASTIC["elasticConfig"], "minReplicas": 4}}
    assert plan_job(fixed)["spec"]["trainer"]["numNodes"] == 4


def test_restart_settings_are_rejected_with_a_named_runtime():
    assert reject({**REPLICAS, "runPolicy": {"backoffLimit": 2}}) == {"custom.runPolicy.backoffLimit": "2"}
    assert reject(numRetries=3) == {"custom.kfpytorch.numRetries": "3"}
    restarted = {**REPLICAS, "workerReplicas": {"replicas": 2, "restartPolicy": "RESTART_POLICY_ON_FAILURE"}}
    assert reject(restarted)["custom.restartPolicy"] == '"OnFailure"'
    path = "custom.kfpytorch.trainJob."
    named = RUNTIME["trainJob"]
    policies = {"successPolicy": {"succeededIndexes": "0"}, "podFailurePolicy": [RULE]}
    values = {f"{path}successPolicy": '"0"', f"{path}podFailurePolicy": '["FailJob"]'}
    assert reject_options(**named, **policies) == values
    assert reject_options(**named, maxRestarts=0) == {f"{path}maxRestarts": "0"}


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ({"priorityClassName": "high"}, "pod.spec.priorityClassName", '"high"'),
        ({"podTemplate": {"spec": {"dnsPolicy": "None", "containers": []}}}, "pod.spec.dnsPolicy", '"None"'),
        ({"podTemplate": {"spec": TERMINAL}}, "pod.spec.containers[node].tty", "true"),
    ],
)
def test_field_that_a_patch_cannot_express_is_rejected(part, field, value):
    assert reject(**part) == {field: value}


def test_sidecar_is_rejected_with_a_named_runtime():
    job = decoded({"masterReplicas": {"replicas": 1}})
    pod = {"spec": {"containers": [{"name": "node"}, {"name": "side"}]}}
    (problem,) = list_problems(named_runtime.build_spec, job, pod, "j", {})
    assert (problem.field, problem.value) == ("pod.spec.containers", '"side"')


def find_reference_problems(
    *found: Runtime, name: str = "torch", kind: str = "ClusterTrainingRuntime", sources=()
) -> list[tuple[str, bool]]:
    """Return the value of each problem of a job with this runtime, and whether others are listed."""
    job = {
        "metadata": {"namespace": "ns"},
        "spec": {"runtimeRef": {"name": name, "kind": kind}, "initializer": {each: {} for each in sources}},
    }
    problems = [*DIALECT.runtimes.check_reference(job, found)] if DIALECT.runtimes else []
    return [(each.value, "other" in each.remedy) for each in problems]


def build_runtime(name: str, role: str = "node", namespace: str = "", **fields) -> Runtime:
    kind = "TrainingRuntime" if namespace else "ClusterTrainingRuntime"
    return Runtime(name=name, kind=kind, role=role, namespace=namespace, **fields)


def test_a_runtime_must_exist_and_have_nodes():
    other = build_runtime("other")
    assert find_reference_problems(build_runtime("torch"), other) == []
    assert find_reference_problems(build_runtime("torch", role="launcher"), other) == [('"torch"', True)]
    assert find_reference_problems(build_runtime("torch", role="")) == [('"torch"', False)]
    assert find_reference_problems(other) == [('"torch"', True)]


def test_a_runtime_must_have_the_initializers_of_the_task():
    dataset, model = "dataset-initializer", "model-initializer"
    both = build_runtime("other", initializers=(dataset, model))
    torch = build_runtime("torch", initializers=(dataset,))
    assert find_reference_problems(torch, both, sources=["dataset"]) == []
    assert find_reference_problems(torch, both, sources=["dataset", "model"]) == [('"torch"', True)]
    assert find_reference_problems(torch, build_runtime("other"), sources=["model"]) == [('"torch"', False)]


def test_a_runtime_of_another_namespace_or_job_does_not_count():
    kind = "TrainingRuntime"
    here, other = build_runtime("torch", namespace="ns"), build_runtime("other", namespace="ns")
    assert find_reference_problems(here, kind=kind) == []
    for found in (build_runtime("torch", namespace="b"), structs.replace(here, job="torch")):
        assert find_reference_problems(found, other, kind=kind) == [('"torch"', True)]
    # Without a runtime of its kind, the cluster decides.
    assert find_reference_problems() == find_reference_problems(build_runtime("x", namespace="ns")) == []


@pytest.mark.parametrize(
    "options",
    [{"runtime": "Torch"}, {"runtime": 254 * "a"}, {"runtime": ""}, {"runtimeKind": "TrainingRuntime"}],
)
def test_name_of_a_runtime_is_required_and_that_of_an_object(options):
    (field,) = options
    assert f"custom.kfpytorch.trainJob.{field}" in reject_options(**options)
