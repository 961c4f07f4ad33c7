"""Tests of the success and failure policies of a TrainJob, and of its placement by JobSet or Kueue."""

import pytest
from builders import reject
from train_job_objects import (
    ELASTIC,
    REPLICAS,
    build_condition,
    build_ended,
    build_job,
    get_jobset,
    get_train_job_options,
    observe,
    plan_train_job,
)

from backend_plugin.core.dialects.trainjob import DIALECT
from kfpytorch_common.completion_indexes import parse_indexes

DISRUPTION = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
POLICY = [
    {"action": "Ignore", "exitCodes": [3, 2, 3], "operator": "NotIn"},
    {"action": "Count", "podConditions": {"Moved": "True"}},
]
FAIL = [{"action": "FailJob", "exitCodes": [42]}]
LOST = {"DisruptionTarget": "True"}


def plan_policies(custom=REPLICAS, **options):
    planned = plan_train_job({**custom, "kfpytorch": {"trainJob": options}})
    jobset = get_jobset(planned)
    return planned.job, jobset["failurePolicy"]["rules"], jobset["replicatedJobs"][0]["template"]["spec"]


def reject_policies(custom=REPLICAS, **options) -> dict[str, str]:
    problems = reject(plan_policies, custom, **options)
    return {each.field.removeprefix("custom.kfpytorch.trainJob."): each.value for each in problems}


def test_rules_of_the_author_follow_that_of_disruptions():
    _, (rule,), spec = plan_policies(podFailurePolicy=POLICY)
    codes = {"containerName": "node", "operator": "NotIn", "values": [2, 3]}
    assert spec["podFailurePolicy"]["rules"] == [
        DISRUPTION,
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
    assert get_train_job_options(job)["succeededIndexes"] == "0,2"
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
    assert reject_policies(ELASTIC, successPolicy={"succeededIndexes": "0"}) == {field: '"0"'}


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
    job = build_job(build_condition(kind), succeeded_indexes="0")
    files = [{"worker": f"j-node-0-{index}-aaaaa", "name": f"error-{index}.pb"} for index in (0, 1)]
    observed = DIALECT.interpret(observe(job, build_ended(0), error_files=files))
    assert [each.worker.removesuffix("-aaaaa") for each in observed.error_files] == found


EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE = {"scheduler": "kueue", "queue": "q"}
COSCHEDULING = {"scheduler": "coscheduling", "pod-groups-by": "backend"}
ADMITTED = {**COSCHEDULING, "local-queue": "q"}


def find_annotations(mode: str | None, gang=None, runtime: str | None = None):
    """Return the annotations of the JobSet, of its Job and of its pods that set a topology."""
    topology = {"level": "rack", **({"mode": mode} if mode else {})}
    options = {"topology": topology, **({"runtime": runtime} if runtime else {})}
    ours = {"gang": gang} if gang else {}
    planned = plan_train_job({**REPLICAS, "kfpytorch": {"trainJob": options}}, ours=ours)
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
        ("preferred", KUEUE, PREFERRED),
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
    custom = {**REPLICAS, "kfpytorch": {"trainJob": {"topology": topology}}}
    (problem, *_) = reject(plan_train_job, custom)
    assert (problem.field, problem.value) == (f"custom.kfpytorch.trainJob.topology.{field}", value)
