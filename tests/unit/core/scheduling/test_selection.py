# ruff: noqa: E501 - a row a case
"""Tests for the selection of a scheduler from settings, options and capabilities, and for its reasons."""

import msgspec
import pytest
from builders import a_run, a_template, reject

from backend_plugin.core import settings
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities

FIVE = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 4}}
GROUPS = ("scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai", "kueue.x-k8s.io")
AUTO = {"scheduler": "auto"}
KUEUE_API = "kueue.x-k8s.io"
KUEUE = {"queues": {"kueue": ("default", "team-a")}, "suspends_jobs": True}
PRIORITY = {"queue": "b", "minMember": 3, "priorityClassName": "high"}
COSCHEDULING = "scheduler-plugins-scheduler scheduling.x-k8s.io/v1alpha1"
VOLCANO = "volcano scheduling.volcano.sh/v1beta1"
NO_GANG = "No gang, and jobs of several replicas may block each other: no scheduler found"
UNKNOWN_OPERATOR = {"operator_scheduler": None, "unknown": {"operator_scheduler": "forbidden; add {x}"}}
FULL = {"admission_scheduler": "exceeded quota", "suspends_jobs": "exceeded quota"}
PARTS = {
    "scheduler": "volcano",
    "pod-groups-by": "backend",
    "queue": "all",
    "by-namespace": {"project-development": {"scheduler": "kai"}, "theirs": {"queue": "theirs"}},
    "by-project": {"project/staging": {"scheduler": "none"}},
    "allowed-schedulers": {"yunikorn": {"queue": "root.a"}, "kai": {}},
}


def has(*groups, **fields):
    """Return the capabilities of a cluster with these API groups; its operator has no gang scheduler."""
    facts = {"operator_scheduler": "", **fields}
    return Capabilities(apis=dict.fromkeys((*groups, "kubeflow.org"), ("v1",)), **facts)


def planned(ganging, found=NOTHING, *, gang=None, run=None):
    custom = {**FIVE, "kfpytorch": {"gang": gang}} if gang else FIVE
    platform = settings.read({"kfpytorch": {"gang": ganging}})
    return plan(a_template(custom), a_run(**(run or {})), platform, (), found)


def refused(ganging, found=NOTHING, **fields):
    return [str(problem) for problem in reject(planned, ganging, found, **fields)]


def describe_plan(made):
    job = made.manifests[0]
    labels = job["metadata"]["labels"]
    scheduler = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"].get("schedulerName", "")
    policy = "policy" if "schedulingPolicy" in job["spec"]["runPolicy"] else ""
    group = made.manifests[1]["apiVersion"] if made.manifests[1:] else ""
    queue = labels.get("kueue.x-k8s.io/queue-name", "")
    return " ".join(filter(None, [scheduler, policy, str(group)])), queue


@pytest.mark.parametrize(
    ("found", "queue", "expected", "why"),
    [
        (has(*GROUPS, admission_scheduler="yunikorn", operator_scheduler="volcano"), "", "yunikorn", "Gangs are for yunikorn: an admission webhook gives every pod the scheduler yunikorn."),
        (has(*GROUPS, operator_scheduler="Volcano"), "a", "policy", "Gangs are for volcano (operator): the training-operator runs with --gang-scheduler-name=V"),
        (has(*GROUPS, operator_scheduler="theirs"), "", "policy", "Gangs are for coscheduling (operator): the training-operator runs with --gang-"),
        (has(*GROUPS, queues={"kai": ("a", "b")}), "a", "kai-scheduler policy", "Gangs are for kai: the cluster has scheduling.run.ai, and the queue is a."),
        (has(*GROUPS), "a", "kai-scheduler policy", "Gangs are for kai: the cluster has"),
        # KAI is not selected without one of its queues.
        (has(*GROUPS), "", VOLCANO, "Gangs are for volcano (backend): the cluster has scheduling.volcano.sh"),
        (has(*GROUPS, queues={"kai": ("b",)}), "a", VOLCANO, "Gangs are for volcano (back"),
        (has("scheduling.x-k8s.io"), "", COSCHEDULING, "Gangs are for coscheduling (backend): the cluster has"),
        (has(), "", "", f"{NO_GANG}."),
        (NOTHING, "", "", f"{NO_GANG}; the c"),
        # If the operator's scheduler is unknown, the reasons do not claim that it does not create pod groups.
        (has(*GROUPS, **UNKNOWN_OPERATOR), "", "", f"{NO_GANG}; operator-scheduler is not known: forbidden; add {{x}}."),
        # The operator runs with the flag for Volcano, but the cluster does not serve Volcano's kinds.
        (has(operator_scheduler="volcano"), "", "", NO_GANG),
    ],
)  # fmt: skip
def test_most_certain_scheduler_of_the_capabilities_is_selected(found, queue, expected, why):
    made = planned({**AUTO, **({"queue": queue} if queue else {})}, found)
    assert describe_plan(made) == (expected, "")
    assert made.reasons[0].startswith(why)


def test_skipped_admission_queue_is_the_one_of_the_settings():
    capabilities = has(KUEUE_API, admission_scheduler="yunikorn")
    made = planned({**AUTO, "local-queue": "theirs"}, capabilities, gang={"queue": "root.own"})
    assert describe_plan(made) == ("yunikorn", "")
    (reason,) = [each for each in made.reasons if each.startswith("Not after queue")]
    assert reason.startswith("Not after queue theirs,")


def test_other_available_schedulers_are_reported():
    made = planned({**AUTO, "queue": "q"}, has(*GROUPS, operator_scheduler="volcano"))
    assert list(made.reasons)[1:] == ["kai is available, too."]
    # The pods of the gang name the scheduler volcano, however the flag is written.
    made = planned(
        {**AUTO, "queue": "q"}, has(*GROUPS, operator_scheduler="Volcano", schedulers=("volcano",))
    )
    assert list(made.reasons)[1:] == ["kai is available, too."]
    made = planned(AUTO, has(*GROUPS, schedulers=("default-scheduler",)))
    assert list(made.reasons)[1:] == [
        "coscheduling (backend) is available, too.",
        "No pod was bound by volcano recently.",
    ]
    made = planned(AUTO, has(admission_scheduler="yunikorn", operator_scheduler="volcano"))
    assert "creates a group for every job, which these gangs do not use" in made.reasons[-1]


def coscheduling(by, **more):
    return {"scheduler": "coscheduling", "pod-groups-by": by, **more}


def volcano(by, **more):
    return {"scheduler": "volcano", "pod-groups-by": by, **more}


@pytest.mark.parametrize(
    ("found", "ganging", "gang", "expected"),
    [
        (has(*GROUPS, **KUEUE), AUTO, {}, (VOLCANO, "default")),
        (has(*GROUPS, **KUEUE), {**AUTO, "local-queue": "team-a"}, {}, (VOLCANO, "team-a")),
        (has(*GROUPS, **KUEUE), AUTO, {"queue": "team-a"}, (VOLCANO, "team-a")),
        (has("kueue.x-k8s.io", **KUEUE), AUTO, {}, ("", "default")),
        (has("kueue.x-k8s.io", **KUEUE), AUTO, {"queue": "team-a"}, ("", "team-a")),
        (has("kueue.x-k8s.io", **KUEUE), AUTO, {"queue": "team-a", "scheduler": "kueue"}, ("", "team-a")),
        (has("kueue.x-k8s.io", **KUEUE), {**AUTO, "queue": "team-a"}, {}, ("", "team-a")),
        (has(*GROUPS, **{**KUEUE, "suspends_jobs": False}), AUTO, {}, (VOLCANO, "")),
        (has(*GROUPS, **{**KUEUE, "queues": {"kueue": ("team-a",)}}), AUTO, {}, (VOLCANO, "")),
        (has(*GROUPS, admission_scheduler="yunikorn", **KUEUE), AUTO, {}, ("yunikorn", "")),
        (has("kueue.x-k8s.io", **{**KUEUE, "suspends_jobs": False}), AUTO, {}, ("", "")),
        (NOTHING, coscheduling("backend", **{"local-queue": "a"}), {}, (COSCHEDULING, "a")),
        (NOTHING, coscheduling("operator", **{"local-queue": "a"}), PRIORITY, ("policy", "b")),
    ],
)
def test_job_may_wait_for_queue_admission_before_gang_scheduling(found, ganging, gang, expected):
    made = planned(ganging, found, gang=gang)
    assert describe_plan(made) == expected
    job = made.manifests[0]
    assert job["spec"]["runPolicy"].get("suspend", False) is bool(expected[1])
    # Kueue uses the priority of the pods.
    assert "kueue.x-k8s.io/priority-class" not in job["metadata"]["labels"]


FLAG = "scheduler-plugins-scheduler"
WITH_KAI = has("scheduling.run.ai", KUEUE_API, queues={"kai": ("q",), "kueue": ("team-a", "b")})


@pytest.mark.parametrize(
    ("ganging", "found", "place"),
    [
        (coscheduling("backend"), has(*GROUPS, operator_scheduler="volcano"), 'pod-groups-by="backend"'),
        (volcano("operator"), has(*GROUPS), 'pod-groups-by="operator"'),
        (volcano("operator"), has(*GROUPS, operator_scheduler=FLAG), 'pod-groups-by="operator"'),
        (coscheduling("operator"), has(*GROUPS, operator_scheduler="volcano"), 'pod-groups-by="operator"'),
        (coscheduling("operator"), has(operator_scheduler=FLAG), 'pod-groups-by="operator"'),
        (volcano("backend"), has("scheduling.x-k8s.io"), 'pod-groups-by="backend"'),
        ({"scheduler": "kai"}, has(), 'scheduler="kai"'),
        ({"scheduler": "kueue", "queue": "a"}, has(KUEUE_API, suspends_jobs=False), 'scheduler="kueue"'),
        ({"scheduler": "kai", "local-queue": "a"}, has("scheduling.run.ai"), 'local-queue="a"'),
        ({"scheduler": "kueue", "queue": "b"}, has(KUEUE_API, queues={"kueue": ("a",)}), 'queue="b"'),
        (volcano("backend", queue="a"), has("scheduling.volcano.sh", queues={"volcano": ()}), 'queue="a"'),
        ({"scheduler": "kai", "queue": "q", "local-queue": "x"}, WITH_KAI, 'local-queue="x"'),
    ],
)
def test_settings_that_contradict_the_capabilities_are_rejected(ganging, found, place):
    (problem,) = refused(ganging, found)
    assert problem.partition(": ")[0] == f"kfpytorch.gang.{place}"
    # The same settings are valid if the capabilities are unknown.
    planned(ganging)


ONLY_KUEUE = has(KUEUE_API, queues={"kueue": ("team-a",)}, suspends_jobs=True)
BESIDE_KAI = has("scheduling.run.ai", KUEUE_API, queues={"kai": ("b",), "kueue": ("team-a",)})
WITHOUT_JOBS = has(KUEUE_API, queues={"kueue": ("team-a",)}, suspends_jobs=False)
NO_QUEUE = ": is not a queue of kueue for this namespace; write team-a"
NO_QUEUE_OF_KAI = ": is not a queue of kai for this namespace; write b"
UNMANAGED = "Not after queue team-a: Kueue does not manage PyTorchJobs"
ASKED = "custom.kfpytorch.gang.queue"
BY_KUEUE = {"queue": "team-a", "scheduler": "kueue"}


@pytest.mark.parametrize(
    ("ganging", "found", "gang", "expected"),
    [
        (AUTO, ONLY_KUEUE, {"queue": "b"}, f'{ASKED}="b"{NO_QUEUE}'),
        (AUTO, ONLY_KUEUE, {"queue": "b", "scheduler": "kueue"}, f'{ASKED}="b"{NO_QUEUE}'),
        ({**AUTO, "queue": "c"}, ONLY_KUEUE, {}, f'kfpytorch.gang.queue="c"{NO_QUEUE}'),
        (AUTO, ONLY_KUEUE, {"scheduler": "kueue"}, f'{ASKED}="": is required by kueue; write team-a'),
        ({"scheduler": "kai", "local-queue": "team-a"}, BESIDE_KAI, {"queue": "a"}, f'{ASKED}="a"{NO_QUEUE}'),
        ({"scheduler": "kai"}, BESIDE_KAI, {"queue": "a"}, f'{ASKED}="a"{NO_QUEUE_OF_KAI}'),
        (AUTO, WITHOUT_JOBS, BY_KUEUE, f"cannot be used on this cluster: {UNMANAGED}"),
    ],
)
def test_queue_that_the_task_cannot_use_is_rejected(ganging, found, gang, expected):
    (problem,) = refused(ganging, found, gang=gang)
    assert problem == expected or (found is WITHOUT_JOBS and expected in problem)


def test_queue_that_cannot_be_looked_up_is_accepted():
    unseen = has("kueue.x-k8s.io", "scheduling.run.ai", queues={"kai": ("a",)}, unknown={"kueue": "no"})
    assert "kueue is not known: no" in planned(AUTO, unseen, gang={"queue": "b"}).reasons[0]


def test_job_with_a_scheduler_queue_does_not_wait_in_the_default_kueue_queue():
    queues = {"kueue": ("default",), "volcano": ("default", "team-b")}
    found = has("kueue.x-k8s.io", "scheduling.volcano.sh", queues=queues, suspends_jobs=True)
    made = planned(AUTO, found, gang={"queue": "team-b"})
    assert describe_plan(made) == (VOLCANO, "")
    assert made.manifests[1]["spec"]["queue"] == "team-b"
    assert made.reasons[-1] == "Not after queue default: the task's team-b is one of volcano."
    assert describe_plan(planned(AUTO, found)) == (VOLCANO, "default")


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
def test_most_specific_setting_selects_the_scheduler(run, gang, expected, why):
    made = planned(PARTS, run=run, gang=gang)
    assert describe_plan(made) == (expected, "")
    assert why in made.reasons[0]
    queues = {"ours": "all", "theirs": "theirs"}
    if expected == VOLCANO:
        assert made.manifests[1]["spec"]["queue"] == queues[run["namespace"]]


def test_gang_of_the_operator_is_reported_although_the_settings_want_none():
    made = planned({"scheduler": "none"}, has(operator_scheduler="volcano"))
    assert len(made.reasons) == 2
    assert "--gang-scheduler-name=volcano" in made.reasons[1]
    assert len(planned({"scheduler": "none"}, has()).reasons) == 1


@pytest.mark.parametrize(
    ("ganging", "found", "scheduler", "remedy"),
    [
        (PARTS, NOTHING, "coscheduling", "leave it out, or write kai or none or yunikorn"),
        (AUTO, has(*GROUPS), "yunikorn", "leave it out"),
        (AUTO, has(*GROUPS, operator_scheduler="volcano"), "none", "leave it out, or write auto or yunikorn"),
        (AUTO, NOTHING, "in-tree", "leave it out, or write auto or none"),
    ],
)
def test_scheduler_that_the_task_cannot_use_is_rejected(ganging, found, scheduler, remedy):
    (problem,) = refused(ganging, found, gang={"scheduler": scheduler})
    assert problem.startswith(f'custom.kfpytorch.gang.scheduler="{scheduler}": ')
    assert remedy in problem.rpartition("; ")[2]


def test_gang_settings_decide_on_group_creation_and_detection():
    def read(**values):
        gang = settings.read({"kfpytorch": {"gang": values}}).kfpytorch.gang
        assert gang.needs_detection is (values.get("scheduler") == "auto")
        return gang.can_create_groups, gang.is_unconfigured

    assert read() == (False, True)
    assert read(scheduler="auto") == (True, False)
    assert read(scheduler="kai") == (False, False)
    assert read(**{"scheduler": "volcano", "pod-groups-by": "operator"}) == (True, False)
    allowed = {"volcano": {"pod-groups-by": "backend"}}
    assert read(**{"scheduler": "kai", "allowed-schedulers": allowed}) == (True, False)
    assert read(**{"by-namespace": {"a": {"scheduler": "kai"}}}) == (False, False)


def test_capabilities_that_could_not_be_probed_keep_their_last_value():
    last = Capabilities(
        admission_scheduler="yunikorn", operator_scheduler="volcano", queues={"kueue": ("a",)}
    )
    now = Capabilities(kubernetes="1.36.1", unknown={**FULL, "operator_scheduler": "none", "kueue": "no"})
    assert now.with_last_known(last) == Capabilities(
        kubernetes="1.36.1",
        admission_scheduler="yunikorn",
        # The earlier values of these may be outdated.
        unknown={"suspends_jobs": "exceeded quota", "operator_scheduler": "none", "kueue": "no"},
    )
    assert now.with_last_known(NOTHING) == now


def test_capabilities_that_were_probed_again_replace_the_last_value():
    now = Capabilities(admission_scheduler="default-scheduler", suspends_jobs=False)
    assert now.with_last_known(Capabilities(admission_scheduler="yunikorn", suspends_jobs=True)) == now
    with pytest.raises(msgspec.ValidationError, match=r"container-defaults\.cpu=1x is not a quantity"):
        msgspec.convert({"container-defaults": {"cpu": "1x"}}, Capabilities)
