"""Tests for the selection of a scheduler from settings, options and capabilities, and for its reasons."""

from typing import Any

import pytest
from builders import a_run, a_template

from backend_plugin.core import settings
from backend_plugin.core.errors import InvalidSettings, InvalidTask
from backend_plugin.core.job import Plan
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities

FIVE = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 4}}
GROUPS = ("scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai", "kueue.x-k8s.io")
AUTO = {"scheduler": "auto"}


def has(*groups: str, **fields: Any) -> Capabilities:
    """Return the capabilities of a cluster with these API groups; its operator has no gang scheduler."""
    facts = {"operator_scheduler": "", **fields}
    return Capabilities(apis=dict.fromkeys((*groups, "kubeflow.org"), ("v1",)), **facts)


def planned(ganging: Any, found: Capabilities = NOTHING, **fields: Any) -> Plan:
    gang = fields.pop("gang", None)
    custom = {**FIVE, **({"kfpytorch": {"gang": gang}} if gang else {})}
    run = a_run(**fields.pop("run", {}))
    template = a_template(custom, **{key: fields.pop(key) for key in ("metadata",) if key in fields})
    return plan(template, run, settings.read({"kfpytorch": {"gang": ganging}}), (), found)


def refused(ganging: Any, found: Capabilities = NOTHING, **fields: Any) -> list[str]:
    with pytest.raises(InvalidTask) as caught:
        planned(ganging, found, **fields)
    return [str(problem) for problem in caught.value.problems]


def describe_plan(made: Plan) -> tuple[str, str]:
    """Return the scheduler of the pods and the queue of the job."""
    job: Any = made.manifests[0]
    labels = job["metadata"]["labels"]
    scheduler = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"].get("schedulerName", "")
    policy = "policy" if "schedulingPolicy" in job["spec"]["runPolicy"] else ""
    group = made.manifests[1]["apiVersion"] if made.manifests[1:] else ""
    queue = labels.get("kueue.x-k8s.io/queue-name", "")
    return " ".join(filter(None, [scheduler, policy, str(group)])), queue


COSCHEDULING = "scheduler-plugins-scheduler scheduling.x-k8s.io/v1alpha1"
VOLCANO = "volcano scheduling.volcano.sh/v1beta1"


@pytest.mark.parametrize(
    ("found", "ganging", "expected", "why"),
    [
        (
            has(*GROUPS, admission_scheduler="yunikorn", operator_scheduler="volcano"),
            AUTO,
            "yunikorn",
            "Gangs are for yunikorn: an admission webhook gives every pod the scheduler yunikorn.",
        ),
        (
            has(*GROUPS, operator_scheduler="Volcano"),
            {**AUTO, "queue": "a"},
            "policy",
            "Gangs are for volcano (operator): the training-operator runs with --gang-scheduler-name=V",
        ),
        (
            has(*GROUPS, operator_scheduler="theirs"),
            AUTO,
            "policy",
            "Gangs are for coscheduling (operator): the training-operator runs with --gang-",
        ),
        (
            has(*GROUPS, queues={"kai": ("a", "b")}),
            {**AUTO, "queue": "a"},
            "kai-scheduler policy",
            "Gangs are for kai: the cluster has scheduling.run.ai, and the queue is a.",
        ),
        (has(*GROUPS), {**AUTO, "queue": "a"}, "kai-scheduler policy", "Gangs are for kai: the cluster has"),
        # KAI is not selected without one of its queues.
        (
            has(*GROUPS),
            AUTO,
            VOLCANO,
            "Gangs are for volcano (backend): the cluster has scheduling.volcano.sh",
        ),
        (
            has(*GROUPS, queues={"kai": ("b",)}),
            {**AUTO, "queue": "a"},
            VOLCANO,
            "Gangs are for volcano (back",
        ),
        (
            has("scheduling.x-k8s.io"),
            AUTO,
            COSCHEDULING,
            "Gangs are for coscheduling (backend): the cluster has",
        ),
        (has(), AUTO, "", "No gang, and jobs of several replicas may block each other: no scheduler found."),
        (
            NOTHING,
            AUTO,
            "",
            "No gang, and jobs of several replicas may block each other: no scheduler found; the c",
        ),
        # If the operator's scheduler is unknown, the reasons do not claim that it does not create pod groups.
        (
            has(*GROUPS, operator_scheduler=None, unknown={"operator_scheduler": "forbidden; add {x}"}),
            AUTO,
            "",
            "No gang, and jobs of several replicas may block each other: no scheduler found; "
            "operator-scheduler is not known: forbidden; add {x}.",
        ),
    ],
)
def test_most_certain_scheduler_of_the_capabilities_is_selected(
    found: Capabilities, ganging: Any, expected: str, why: str
) -> None:
    made = planned(ganging, found)
    assert describe_plan(made) == (expected, "")
    assert made.reasons[0].startswith(why)


def test_other_available_schedulers_are_reported() -> None:
    made = planned(
        {**AUTO, "schedule-timeout": "1m", "queue": "q"}, has(*GROUPS, operator_scheduler="volcano")
    )
    assert list(made.reasons) == [
        "Gangs are for volcano (operator): the training-operator runs with --gang-scheduler-name=volcano.",
        "kai is available, too.",
    ]
    made = planned(AUTO, has(*GROUPS, schedulers=("default-scheduler",)))
    assert list(made.reasons)[1:] == [
        "coscheduling (backend) is available, too.",
        "No pod was bound by volcano recently.",
    ]
    made = planned(AUTO, has(admission_scheduler="yunikorn", operator_scheduler="volcano"))
    assert "creates a group for every job, which these gangs do not use" in made.reasons[-1]


def test_scheduler_whose_api_is_not_served_is_not_selected() -> None:
    """The operator runs with the flag for Volcano, but the cluster does not serve Volcano's kinds."""
    made = planned(AUTO, has(operator_scheduler="volcano"))
    assert describe_plan(made) == ("", "")
    assert made.reasons[0].startswith(
        "No gang, and jobs of several replicas may block each other: no scheduler"
    )


KUEUE = {"queues": {"kueue": ("default", "team-a")}, "suspends_jobs": True}


@pytest.mark.parametrize(
    ("found", "ganging", "gang", "expected"),
    [
        (has(*GROUPS, **KUEUE), AUTO, {}, (VOLCANO, "default")),
        (has(*GROUPS, **KUEUE), {**AUTO, "local-queue": "team-a"}, {}, (VOLCANO, "team-a")),
        (has(*GROUPS, **KUEUE), AUTO, {"queue": "team-a"}, (VOLCANO, "team-a")),
        (has("kueue.x-k8s.io", **KUEUE), AUTO, {}, ("", "default")),
        (has("kueue.x-k8s.io", **KUEUE), AUTO, {"queue": "team-a"}, ("", "team-a")),
        (has(*GROUPS, **{**KUEUE, "suspends_jobs": False}), AUTO, {}, (VOLCANO, "")),
        (has(*GROUPS, **{**KUEUE, "queues": {"kueue": ("team-a",)}}), AUTO, {}, (VOLCANO, "")),
        (has(*GROUPS, admission_scheduler="yunikorn", **KUEUE), AUTO, {}, ("yunikorn", "")),
        (has("kueue.x-k8s.io", **{**KUEUE, "suspends_jobs": False}), AUTO, {}, ("", "")),
        (
            NOTHING,
            {"scheduler": "coscheduling", "pod-groups-by": "backend", "local-queue": "a"},
            {},
            (COSCHEDULING, "a"),
        ),
        (
            NOTHING,
            {"scheduler": "coscheduling", "pod-groups-by": "operator", "local-queue": "a"},
            {"queue": "b", "minMember": 3, "priorityClassName": "high"},
            ("policy", "b"),
        ),
    ],
)
def test_job_may_wait_for_queue_admission_before_gang_scheduling(
    found: Capabilities, ganging: Any, gang: Any, expected: tuple[str, str]
) -> None:
    made = planned(ganging, found, gang=gang)
    assert describe_plan(made) == expected
    job: Any = made.manifests[0]
    assert job["spec"]["runPolicy"].get("suspend", False) is bool(expected[1])
    # Kueue uses the priority of the pods.
    assert "kueue.x-k8s.io/priority-class" not in job["metadata"]["labels"]


@pytest.mark.parametrize(
    ("ganging", "found", "place"),
    [
        (
            {"scheduler": "coscheduling", "pod-groups-by": "backend"},
            has(*GROUPS, operator_scheduler="volcano"),
            'pod-groups-by="backend"',
        ),
        ({"scheduler": "volcano", "pod-groups-by": "operator"}, has(*GROUPS), 'pod-groups-by="operator"'),
        (
            {"scheduler": "volcano", "pod-groups-by": "operator"},
            has(*GROUPS, operator_scheduler="scheduler-plugins-scheduler"),
            'pod-groups-by="operator"',
        ),
        (
            {"scheduler": "coscheduling", "pod-groups-by": "operator"},
            has(*GROUPS, operator_scheduler="volcano"),
            'pod-groups-by="operator"',
        ),
        (
            {"scheduler": "coscheduling", "pod-groups-by": "operator"},
            has(operator_scheduler="scheduler-plugins-scheduler"),
            'pod-groups-by="operator"',
        ),
        (
            {"scheduler": "volcano", "pod-groups-by": "backend"},
            has("scheduling.x-k8s.io"),
            'pod-groups-by="backend"',
        ),
        ({"scheduler": "kai"}, has(), 'scheduler="kai"'),
        (
            {"scheduler": "kueue", "queue": "a"},
            has("kueue.x-k8s.io", suspends_jobs=False),
            'scheduler="kueue"',
        ),
        ({"scheduler": "kai", "local-queue": "a"}, has("scheduling.run.ai"), 'local-queue="a"'),
        (
            {"scheduler": "kueue", "queue": "team-b"},
            has("kueue.x-k8s.io", queues={"kueue": ("team-a",)}),
            'queue="team-b"',
        ),
        (
            {"scheduler": "volcano", "pod-groups-by": "backend", "queue": "a"},
            has("scheduling.volcano.sh", queues={"volcano": ()}),
            'queue="a"',
        ),
        (
            {"scheduler": "kai", "queue": "q", "local-queue": "x"},
            has("scheduling.run.ai", "kueue.x-k8s.io", queues={"kai": ("q",), "kueue": ("team-a", "b")}),
            'local-queue="x"',
        ),
    ],
)
def test_settings_that_contradict_the_capabilities_are_rejected(
    ganging: Any, found: Capabilities, place: str
) -> None:
    (problem,) = refused(ganging, found)
    assert problem.partition(": ")[0] == f"kfpytorch.gang.{place}"
    # The same settings are valid if the capabilities are unknown.
    planned(ganging)


def test_unknown_queue_of_the_author_is_rejected() -> None:
    found = has("scheduling.run.ai", "kueue.x-k8s.io", queues={"kai": ("b",), "kueue": ("team-a",)})
    unknown = 'custom.kfpytorch.gang.queue="teama": is not a queue of {0} for this namespace; write {1}'
    assert refused({"scheduler": "kai"}, found, gang={"queue": "teama"}) == [unknown.format("kai", "b")]
    both = {"scheduler": "kai", "local-queue": "team-a"}
    assert refused(both, found, gang={"queue": "teama"}) == [unknown.format("kueue", "team-a")]


ONLY_KUEUE = has("kueue.x-k8s.io", queues={"kueue": ("team-a",)}, suspends_jobs=True)
NO_QUEUE = ": is not a queue of kueue for this namespace; write team-a"


@pytest.mark.parametrize(
    ("ganging", "gang", "expected"),
    [
        ({**AUTO, "queue": "team-a"}, {}, []),
        (AUTO, {"queue": "team-a", "scheduler": "kueue"}, []),
        (AUTO, {"queue": "b"}, ['custom.kfpytorch.gang.queue="b"' + NO_QUEUE]),
        (AUTO, {"queue": "b", "scheduler": "kueue"}, ['custom.kfpytorch.gang.queue="b"' + NO_QUEUE]),
        ({**AUTO, "queue": "c"}, {}, ['kfpytorch.gang.queue="c"' + NO_QUEUE]),
        (
            AUTO,
            {"scheduler": "kueue"},
            ['custom.kfpytorch.gang.queue="": is required by kueue; write team-a'],
        ),
    ],
)
def test_queue_is_one_of_kueue_if_only_kueue_is_available(
    ganging: Any, gang: Any, expected: list[str]
) -> None:
    if expected:
        assert refused(ganging, ONLY_KUEUE, gang=gang) == expected
    else:
        assert describe_plan(planned(ganging, ONLY_KUEUE, gang=gang)) == ("", "team-a")


def test_reason_why_a_task_cannot_use_kueue_is_reported() -> None:
    alone = has("kueue.x-k8s.io", queues={"kueue": ("team-a",)}, suspends_jobs=False)
    (problem,) = refused(AUTO, alone, gang={"queue": "team-a", "scheduler": "kueue"})
    assert (
        "cannot be used on this cluster: Not after queue team-a: Kueue does not manage PyTorchJobs" in problem
    )


def test_queue_that_cannot_be_looked_up_is_accepted() -> None:
    unseen = has("kueue.x-k8s.io", "scheduling.run.ai", queues={"kai": ("a",)}, unknown={"kueue": "no"})
    assert "kueue is not known: no" in planned(AUTO, unseen, gang={"queue": "b"}).reasons[0]


def test_job_with_a_scheduler_queue_does_not_wait_in_the_default_kueue_queue() -> None:
    queues = {"kueue": ("default",), "volcano": ("default", "team-b")}
    found = has("kueue.x-k8s.io", "scheduling.volcano.sh", queues=queues, suspends_jobs=True)
    made = planned(AUTO, found, gang={"queue": "team-b"})
    assert describe_plan(made) == (VOLCANO, "")
    group: Any = made.manifests[1]
    assert group["spec"]["queue"] == "team-b"
    assert made.reasons[-1] == "Not after queue default: the task's team-b is one of volcano."
    assert describe_plan(planned(AUTO, found)) == (VOLCANO, "default")


PARTS = {
    "scheduler": "volcano",
    "pod-groups-by": "backend",
    "queue": "all",
    "by-namespace": {"project-development": {"scheduler": "kai"}, "theirs": {"queue": "theirs"}},
    "by-project": {"project/staging": {"scheduler": "none"}},
    "allowed-schedulers": {"yunikorn": {"queue": "root.a"}, "kai": {}},
}


@pytest.mark.parametrize(
    ("run", "gang", "expected", "why"),
    [
        ({"namespace": "ours"}, {}, VOLCANO, "Gangs are for volcano (backend): set by kfpytorch.gang."),
        ({"namespace": "theirs"}, {}, VOLCANO, "set by kfpytorch.gang.by-namespace.theirs."),
        ({}, {}, "kai-scheduler policy", "set by kfpytorch.gang.by-namespace.project-development."),
        ({"domain": "staging"}, {}, "", "No gang: set by kfpytorch.gang.by-project.project/staging."),
        ({}, {"scheduler": "yunikorn"}, "yunikorn", "the task sets Gang(scheduler='yunikorn'), which"),
        ({}, {"scheduler": "none"}, "", "No gang: the task sets Gang(scheduler='none')."),
        ({"namespace": "ours"}, {"scheduler": "volcano"}, VOLCANO, "Gangs are for volcano (backend): set"),
    ],
)
def test_most_specific_setting_selects_the_scheduler(run: Any, gang: Any, expected: str, why: str) -> None:
    made = planned(PARTS, run=run, gang=gang)
    assert describe_plan(made) == (expected, "")
    assert why in made.reasons[0]
    queues = {"ours": "all", "theirs": "theirs"}
    if expected == VOLCANO:
        spec: Any = made.manifests[1]["spec"]
        assert spec["queue"] == queues[run["namespace"]]


def test_task_may_name_an_allowed_or_available_scheduler() -> None:
    (problem,) = refused(PARTS, gang={"scheduler": "coscheduling"})
    assert problem.endswith("on this platform; leave it out, or write kai or none or yunikorn")
    found = has(*GROUPS)
    assert describe_plan(planned(AUTO, found, gang={"scheduler": "coscheduling"})) == (COSCHEDULING, "")
    assert describe_plan(planned(AUTO, found, gang={"scheduler": "auto"})) == (VOLCANO, "")
    (problem,) = refused(AUTO, found, gang={"scheduler": "yunikorn"})
    assert problem == 'custom.kfpytorch.gang.scheduler="yunikorn": is not found on this cluster; leave it out'
    (problem,) = refused(AUTO, has(*GROUPS, operator_scheduler="volcano"), gang={"scheduler": "none"})
    assert "leave it out, or write auto or yunikorn" in problem


@pytest.mark.parametrize(
    ("found", "ends"),
    [
        (NOTHING, "that are not in its schema; "),
        (
            Capabilities(
                kubernetes="1.36.1",
                apis={"scheduling.k8s.io": ("v1", "v1alpha2")},
                keeps_scheduling_group=True,
            ),
            "; this cluster is Kubernetes 1.36.1, serves scheduling.k8s.io/v1alpha2, "
            "and keeps the field of a pod; ",
        ),
        (
            Capabilities(kubernetes="1.34.0", keeps_scheduling_group=False),
            "; this cluster is Kubernetes 1.34.0, serves none of its kinds, and drops the field of a pod; ",
        ),
    ],
)
def test_in_tree_gang_scheduling_is_rejected_with_the_version(found: Capabilities, ends: str) -> None:
    (problem,) = refused(AUTO, found, gang={"scheduler": "in-tree"})
    assert f"{ends}leave it out, or write auto or none" in problem


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ({"by-namespace": {"a": {"scheduler": "volcano"}}}, ['by-namespace.a.pod-groups-by=""']),
        (
            {"scheduler": "kai", "queue": "a b", "by-namespace": {"a": {"schedule-timeout": "1s"}}},
            ['queue="a b"', 'by-namespace.a.schedule-timeout="0:00:01"'],
        ),
        ({"by-project": {"a": {"scheduler": "kai"}}}, ['by-project="a"']),
        ({"allowed-schedulers": {"auto": {}}}, ['allowed-schedulers="auto"']),
        ({"allowed-schedulers": {"kai": {"scheduler": "x"}}}, ["allowed-schedulers.kai.scheduler='x'"]),
        ({"allowed-schedulers": "kai"}, ["allowed-schedulers='kai'"]),
        ({"local-queue": "a"}, ['local-queue="a"']),
        ({"scheduler": "kueue", "local-queue": "a"}, ['local-queue="a"']),
        ({"scheduler": "yunikorn", "local-queue": "a"}, ['local-queue="a"']),
    ],
)
def test_invalid_part_of_the_gang_settings_is_rejected_by_its_path(value: Any, places: list[str]) -> None:
    with pytest.raises(InvalidSettings) as caught:
        settings.read({"kfpytorch": {"gang": value}})
    found = [str(problem).partition(": ")[0] for problem in caught.value.problems]
    assert found == [f"kfpytorch.gang.{place}" for place in places]


def test_gang_settings_decide_on_group_creation_and_detection() -> None:
    def read(**values: Any) -> tuple[bool, bool]:
        gang = settings.read({"kfpytorch": {"gang": values}}).kfpytorch.gang
        assert gang.needs_detection is (values.get("scheduler") == "auto")
        return gang.can_create_groups, gang.is_unconfigured

    assert read() == (False, True)
    assert read(scheduler="auto") == (True, False)
    assert read(scheduler="kai") == (False, False)
    assert read(**{"scheduler": "kai", "allowed-schedulers": {"volcano": {"pod-groups-by": "backend"}}}) == (
        True,
        False,
    )
    assert read(**{"by-namespace": {"a": {"scheduler": "kai"}}}) == (False, False)
