"""Tests of the policies and the topology of a TrainJob, and of a TrainJob on a runtime of the cluster."""

import pytest
import train_job_objects as trainjobs
from builders import decoded, reject
from msgspec import structs

from backend_plugin.core.dialects.trainjob import DIALECT, named_runtime
from backend_plugin.core.runtimes import Runtime
from kfpytorch_common.completion_indexes import parse_indexes

POLICY = [
    {"action": "Ignore", "exitCodes": [3, 2, 3], "operator": "NotIn"},
    {"action": "Count", "podConditions": {"Moved": "True"}},
]
FAIL = [{"action": "FailJob", "exitCodes": [42]}]
LOST = {"DisruptionTarget": "True"}
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
KUEUE = {"scheduler": "kueue", "queue": "q"}
COSCHEDULING = {"scheduler": "coscheduling", "pod-groups-by": "backend"}
ADMITTED = {**COSCHEDULING, "local-queue": "q"}
RULE = {"action": "FailJob", "exitCodes": [1]}
RUNTIME = {"trainJob": {"runtime": "torch-distributed"}}
TERMINAL = {"containers": [{"name": "primary", "tty": True}]}


def plan_policies(custom=trainjobs.REPLICAS, **options):
    planned = trainjobs.plan_train_job({**custom, "kfpytorch": {"trainJob": options}})
    jobset = trainjobs.get_jobset(planned)
    return planned.job, jobset["failurePolicy"]["rules"], jobset["replicatedJobs"][0]["template"]["spec"]


def reject_policies(custom=trainjobs.REPLICAS, **options):
    problems = reject(plan_policies, custom, **options)
    return {each.field.removeprefix("custom.kfpytorch.trainJob."): each.value for each in problems}


def test_rules_of_the_author_follow_that_of_disruptions():
    _, (rule,), spec = plan_policies(podFailurePolicy=POLICY)
    codes = {"containerName": "node", "operator": "NotIn", "values": [2, 3]}
    assert spec["podFailurePolicy"]["rules"] == [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": codes},
        {"action": "Count", "onPodConditions": [{"type": "Moved", "status": "True"}]},
    ]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert "onJobFailureMessagePatterns" not in rule


def test_job_that_a_rule_fails_is_restarted_only_for_a_disruption():
    _, (first, second), _ = plan_policies(podFailurePolicy=FAIL, maxRestarts=3)
    assert first["onJobFailureReasons"] == second["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert (first["action"], second["action"]) == ("RestartJobSetAndIgnoreMaxRestarts", "FailJobSet")
    assert first["onJobFailureMessagePatterns"] == [" has condition DisruptionTarget "]
    assert "onJobFailureMessagePatterns" not in second


def test_success_policy_sets_the_nodes_that_must_succeed():
    job, _, spec = plan_policies(successPolicy={"succeededIndexes": "0,2"})
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0,2"}]}
    assert trainjobs.get_train_job_options(job)["succeededIndexes"] == "0,2"
    assert "successPolicy" not in plan_policies()[2]


@pytest.mark.parametrize("text", ["", "0,", "a", "0-0", "2,1", "0-2,2", "-1", "1234567"])
def test_invalid_indexes_are_rejected(text):
    assert parse_indexes(text) is None
    assert reject_policies(successPolicy={"succeededIndexes": text}) == {
        "successPolicy.succeededIndexes": f'"{text}"'
    }


def test_success_policy_must_include_the_first_node_and_only_existing_nodes():
    field = "successPolicy.succeededIndexes"
    assert reject_policies(successPolicy={"succeededIndexes": "1-2"}) == {field: '"1-2"'}
    assert reject_policies(successPolicy={"succeededIndexes": "0,3"}) == {field: '"0,3"'}
    assert reject_policies(trainjobs.ELASTIC, successPolicy={"succeededIndexes": "0"}) == {field: '"0"'}


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({}, {"action": '""', "exitCodes": "[]"}),
        ({"action": "FailIndex", "exitCodes": [1]}, {"action": '"FailIndex"'}),
        ({"action": "Count", "exitCodes": [1], "operator": "Out"}, {"operator": '"Out"'}),
        ({"action": "Count", "exitCodes": [0, 300]}, {"exitCodes": "[0, 300]"}),
        ({"action": "Count", "exitCodes": [1], "podConditions": {"A": "True"}}, {"exitCodes": "[1]"}),
        ({"action": "Count", "podConditions": {"A": "yes"}}, {"podConditions.A": '"yes"'}),
        ({"action": "Count", "podConditions": LOST}, {"podConditions": '"DisruptionTarget"'}),
    ],
)
def test_invalid_failure_policy_rules_are_rejected(rule, found):
    assert reject_policies(podFailurePolicy=[*FAIL, rule]) == {
        f"podFailurePolicy[1].{field}": value for field, value in found.items()
    }


def test_job_has_at_most_twenty_rules():
    assert reject_policies(podFailurePolicy=20 * FAIL) == {"podFailurePolicy": "20 rules"}


@pytest.mark.parametrize(
    ("kind", "found"), [("Complete", ["j-node-0-0"]), ("Failed", ["j-node-0-0", "j-node-0-1"])]
)
def test_error_files_of_other_nodes_are_ignored_after_a_success(kind, found):
    job = trainjobs.build_job(trainjobs.build_condition(kind), succeeded_indexes="0")
    files = [{"worker": f"j-node-0-{index}-aaaaa", "name": f"error-{index}.pb"} for index in (0, 1)]
    observed = DIALECT.interpret(trainjobs.observe(job, trainjobs.build_ended(0), error_files=files))
    assert [each.worker.removesuffix("-aaaaa") for each in observed.error_files] == found


def find_annotations(mode, gang=None, runtime=None):
    """Return the annotations of the JobSet, of its Job and of its pods that set a topology."""
    topology = {"level": "rack", **({"mode": mode} if mode else {})}
    options = {"topology": topology, **({"runtime": runtime} if runtime else {})}
    ours = {"gang": gang} if gang else {}
    planned = trainjobs.plan_train_job({**trainjobs.REPLICAS, "kfpytorch": {"trainJob": options}}, ours=ours)
    if runtime:
        (patch,) = planned.job["spec"]["runtimePatches"]
        template = patch["trainingRuntimeSpec"]["template"]
    else:
        template = planned.prerequisites[0]["spec"]["template"]
    (node,) = template["spec"]["replicatedJobs"]
    job = node["template"]
    return {
        key: value
        for each in (template, job, job["spec"]["template"])
        for key, value in each.get("metadata", {}).get("annotations", {}).items()
        if "topology" in key
    }


@pytest.mark.parametrize("runtime", [None, "torch-distributed"])
@pytest.mark.parametrize(
    ("mode", "gang", "annotation"),
    [
        (None, None, EXCLUSIVE),
        ("exclusive", None, EXCLUSIVE),
        (None, KUEUE, REQUIRED),
        ("required", KUEUE, REQUIRED),
        ("preferred", KUEUE, "kueue.x-k8s.io/podset-preferred-topology"),
        ("exclusive", KUEUE, EXCLUSIVE),
    ],
)
def test_topology_mode_is_derived_from_the_scheduler_or_the_author(mode, gang, annotation, runtime):
    assert find_annotations(mode, gang, runtime) == {annotation: "rack"}


def test_kueue_selects_a_domain_for_pods_that_another_scheduler_places():
    assert find_annotations(None, ADMITTED) == {REQUIRED: "rack"}


@pytest.mark.parametrize(
    ("mode", "gang"),
    [("required", None), ("preferred", COSCHEDULING), (None, COSCHEDULING), ("exclusive", ADMITTED)],
)
def test_topology_mode_that_the_scheduler_does_not_support_is_rejected(mode, gang):
    (problem,) = reject(find_annotations, mode, gang)
    assert problem.field == "custom.kfpytorch.trainJob.topology.mode"
    assert problem.value == f'"{mode or "exclusive"}"'


@pytest.mark.parametrize(
    ("topology", "field", "value"),
    [
        ({"level": "a b"}, "level", '"a b"'),
        ({"mode": "required"}, "level", '""'),
        ({"level": "rack", "mode": "strict"}, "mode", '"strict"'),
    ],
)
def test_invalid_topology_is_rejected(topology, field, value):
    custom = {**trainjobs.REPLICAS, "kfpytorch": {"trainJob": {"topology": topology}}}
    (problem, *_) = reject(trainjobs.plan_train_job, custom)
    assert (problem.field, problem.value) == (f"custom.kfpytorch.trainJob.topology.{field}", value)


def plan_job(custom=trainjobs.REPLICAS, **part):
    """Return the TrainJob of a task whose master and workers have the same placement."""
    ours = {**RUNTIME, **({"master": part, "worker": part} if part else {})}
    planned = trainjobs.plan_train_job({**custom, "kfpytorch": ours})
    assert planned.prerequisites == ()
    return planned.job


def reject_job(custom=trainjobs.REPLICAS, **part):
    return {each.field: each.value for each in reject(plan_job, custom, **part)}


def reject_options(**options):
    custom = {**trainjobs.REPLICAS, "kfpytorch": {"trainJob": options}}
    return {each.field: each.value for each in reject(trainjobs.plan_train_job, custom)}


def test_job_may_reference_a_runtime_of_its_namespace():
    extension = {"trainJob": {**RUNTIME["trainJob"], "runtimeKind": "TrainingRuntime"}}
    job = trainjobs.plan_train_job({**trainjobs.REPLICAS, "kfpytorch": extension}).job
    reference = job["spec"]["runtimeRef"]
    assert (reference["kind"], reference["name"]) == ("TrainingRuntime", "torch-distributed")


def test_patch_has_the_volumes_of_the_pods():
    mounts = [{"name": "data", "mountPath": "/data"}]
    volumes = [{"name": "data", "emptyDir": {}}]
    containers = [{"name": "primary", "volumeMounts": mounts}]
    job = plan_job(podTemplate={"spec": {"volumes": volumes, "containers": containers}})
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    made = {"volumes": volumes, "containers": [{"name": "node", "volumeMounts": mounts}]}
    assert node["template"]["spec"]["template"]["spec"] == made


def test_node_range_is_rejected_with_a_named_runtime():
    assert reject_job(trainjobs.ELASTIC) == {"custom.elasticConfig": "2:4"}
    fixed = {**trainjobs.ELASTIC, "elasticConfig": {**trainjobs.ELASTIC["elasticConfig"], "minReplicas": 4}}
    assert plan_job(fixed)["spec"]["trainer"]["numNodes"] == 4


def test_restart_settings_are_rejected_with_a_named_runtime():
    assert reject_job({**trainjobs.REPLICAS, "runPolicy": {"backoffLimit": 2}}) == {
        "custom.runPolicy.backoffLimit": "2"
    }
    assert reject_job(numRetries=3) == {"custom.kfpytorch.numRetries": "3"}
    restarted = {
        **trainjobs.REPLICAS,
        "workerReplicas": {"replicas": 2, "restartPolicy": "RESTART_POLICY_ON_FAILURE"},
    }
    assert reject_job(restarted)["custom.restartPolicy"] == '"OnFailure"'
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
    assert reject_job(**part) == {field: value}


def test_sidecar_is_rejected_with_a_named_runtime():
    job = decoded({"masterReplicas": {"replicas": 1}})
    pod = {"spec": {"containers": [{"name": "node"}, {"name": "side"}]}}
    (problem,) = reject(named_runtime.build_spec, job, pod, "j", {})
    assert (problem.field, problem.value) == ("pod.spec.containers", '"side"')


def find_reference_problems(*found, name="torch", kind="ClusterTrainingRuntime", sources=()):
    """Return the value of each problem of a job with this runtime, and whether others are listed."""
    job = {
        "metadata": {"namespace": "ns"},
        "spec": {"runtimeRef": {"name": name, "kind": kind}, "initializer": {each: {} for each in sources}},
    }
    problems = [*DIALECT.runtimes.check_reference(job, found)] if DIALECT.runtimes else []
    return [(each.value, "other" in each.remedy) for each in problems]


def build_runtime(name, role="node", namespace="", **fields):
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
