"""Tests of the placement of a TrainJob in one domain, by JobSet or by Kueue."""

import pytest
from builders import reject
from train_job_objects import REPLICAS, plan_train_job

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
        (found,) = planned.prerequisites
        template = found["spec"]["template"]
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
