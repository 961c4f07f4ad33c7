"""Tests for the gang settings of the platform, the gang options of authors, and the resulting job.

A job whose pods select a gang scheduler, but that forms no gang, has a warning.
"""

import json

import pytest
from builders import a_run, a_template, reject

from backend_plugin.core import names, settings
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.errors import InvalidSettings
from backend_plugin.core.names import PLACE, PLACE_OF
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling import companions
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities

FIVE = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 4}}
SINGLE = {"workerReplicas": {"replicas": 0}, "masterReplicas": {"replicas": 1}}
BACKEND = {"scheduler": "coscheduling", "pod-groups-by": "backend"}
OPERATOR = {"scheduler": "coscheduling", "pod-groups-by": "operator"}
AUTO = {"scheduler": "auto", "pod-groups-by": "backend"}
TIMED = {"scheduler": "kueue", "schedule-timeout": "1s"}
VOLCANO_BY_BACKEND = {"scheduler": "volcano", "pod-groups-by": "backend", "queue": "a"}
VOLCANO_BY_OPERATOR = {"scheduler": "volcano", "pod-groups-by": "operator"}
IN_ROOT_A = {"scheduler": "yunikorn", "queue": "root.a"}
GROUP = '{"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {}}'
TWO = {"workerReplicas": {"replicas": 2}}
COSCHEDULING = {"spec": {"schedulerName": "scheduler-plugins-scheduler"}}
IN_GROUP = {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}}
TASK_GROUP = "yunikorn.apache.org/task-group"
BY_BACKEND = "{scheduler: coscheduling, pod-groups-by: backend} in the settings, or"
YUNIKORN = {"metadata": {"annotations": {f"{TASK_GROUP}-name": "", f"{TASK_GROUP}s": ""}}}


def planned(ganging, custom=FIVE, **task):
    gang = task.pop("gang", None)
    more = {"kfpytorch": {"gang": gang}} if gang else {}
    section = settings.read({"kfpytorch": {"gang": ganging}, **task.pop("flyte", {})})
    templates = task.pop("pod_templates", ())
    return [*plan(a_template({**custom, **more}, **task), a_run(), section, templates).manifests]


def refused(*arguments, **more) -> list[str]:
    return [str(problem) for problem in reject(planned, *arguments, **more)]


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ({"scheduler": "volcanoe"}, ['scheduler="volcanoe"']),
        ({"scheduler": "in-tree"}, ['scheduler="in-tree"']),
        ({**AUTO, "scheduler-name": "a"}, ['scheduler-name="a"', 'pod-groups-by="backend"']),
        ({"pod-groups-by": "backend"}, ['pod-groups-by="backend"']),
        ({"queue": "a", "schedule-timeout": "1s"}, ['queue="a"', 'schedule-timeout="0:00:01"']),
        ({"scheduler": "coscheduling"}, ['pod-groups-by=""']),
        ({**BACKEND, "pod-groups-by": "x"}, ['pod-groups-by="x"']),
        # A value that cannot be parsed is not also reported as missing.
        ({**BACKEND, "pod-groups-by": [1]}, ["pod-groups-by=[1]"]),
        ({**BACKEND, "queue": "a"}, ['queue="a"']),
        ({**BACKEND, "schedule-timeout": "1500ms"}, ['schedule-timeout="0:00:01.500000"']),
        ({"scheduler": "kueue", "pod-groups-by": "backend"}, ['pod-groups-by="backend"']),
        ({**TIMED, "scheduler-name": "a"}, ['schedule-timeout="0:00:01"', 'scheduler-name="a"']),
        ({"scheduler": "kai", "queue": "a b"}, ['queue="a b"']),
        ({**BACKEND, "scheduler-name": "A"}, ['scheduler-name="A"']),
        ({**BACKEND, "schedule-timeot": "1s"}, ["schedule-timeot='1s'"]),
        ({"by-namespace": {"a": {"scheduler": "volcano"}}}, ['by-namespace.a.pod-groups-by=""']),
        (
            {"scheduler": "kai", "queue": "a b", "by-namespace": {"a": {"schedule-timeout": "1s"}}},
            ['queue="a b"', 'by-namespace.a.schedule-timeout="0:00:01"', 'by-namespace.a.queue="a b"'],
        ),
        ({"by-project": {"a": {"scheduler": "kai"}}}, ['by-project="a"']),
        ({"allowed-schedulers": {"kai": {"scheduler": "x"}}}, ["allowed-schedulers.kai.scheduler='x'"]),
        ({"allowed-schedulers": "kai"}, ["allowed-schedulers='kai'"]),
        ({"local-queue": "a"}, ['local-queue="a"']),
        ({"scheduler": "kueue", "local-queue": "a"}, ['local-queue="a"']),
        ({"scheduler": "yunikorn", "local-queue": "a"}, ['local-queue="a"']),
    ],
)
def test_invalid_gang_settings_are_rejected(value, places):
    with pytest.raises(InvalidSettings) as caught:
        settings.read({"kfpytorch": {"gang": value}})
    found = [str(problem).partition(": ")[0] for problem in caught.value.problems]
    assert found == [f"kfpytorch.gang.{place}" for place in places]


@pytest.mark.parametrize(
    ("ganging", "options", "place"),
    [
        ({}, {"scheduler": "volcano"}, 'scheduler="volcano"'),
        (BACKEND, {"scheduler": "kai"}, 'scheduler="kai"'),
        # This operator creates a pod group for each job.
        (OPERATOR, {"scheduler": "none"}, 'scheduler="none"'),
        (BACKEND, {"queue": "a"}, 'queue="a"'),
        ({"scheduler": "kai"}, {"queue": "a b"}, 'queue="a b"'),
        ({"scheduler": "kueue", "queue": "a"}, {"minMember": 3}, "minMember=3"),
        ({"scheduler": "kueue"}, {}, 'queue=""'),
    ],
)
def test_gang_option_that_the_platform_does_not_support_is_rejected(ganging, options, place):
    (problem,) = refused(ganging, gang=options)
    assert problem.partition(": ")[0] == f"custom.kfpytorch.gang.{place}"


def test_job_with_scheduler_none_or_a_single_replica_has_no_gang():
    plain = planned({})
    assert planned({"scheduler": "none"}) == plain
    for platform in ({"scheduler": "kueue"}, BACKEND):
        assert planned(platform, gang={"scheduler": "none"}) == planned({}, gang={"scheduler": "none"})
    assert planned(BACKEND, gang={"scheduler": "none"})[0]["spec"] == plain[0]["spec"]
    for ganging in (BACKEND, OPERATOR):
        assert planned(ganging, SINGLE) == planned({}, SINGLE)


def test_pod_scheduler_name_that_conflicts_with_the_gang_is_rejected():
    other = {"scheduler-name": "default-scheduler"}
    problem, _ = refused(BACKEND, flyte=other)
    assert problem.startswith(
        'master pod.schedulerName="default-scheduler": conflicts with the gang, which needs'
    )
    assert len(refused(OPERATOR, flyte=other)) == 2
    job, _ = planned({**BACKEND, "scheduler-name": "default-scheduler"}, flyte=other)
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["schedulerName"] == "default-scheduler"


def pods(job):
    return {role: each["template"] for role, each in job["spec"]["pytorchReplicaSpecs"].items()}


def test_role_outside_the_gang_minimum_has_no_reservation():
    (job,) = planned({"scheduler": "yunikorn"}, gang={"minMember": 1})
    master, worker = pods(job)["Master"]["metadata"], pods(job)["Worker"]["metadata"]
    of_yunikorn = "yunikorn.apache.org/"
    groups = json.loads(worker["annotations"][of_yunikorn + "task-groups"])
    labels = groups[0].pop("labels")
    assert groups == [{"name": "master", "minMember": 1, "minResource": {"cpu": "1", "memory": "1Gi"}}]
    # The labels by which placeholder pods are recognized.
    assert labels.keys() == {names.IDENTITY, PLACE, PLACE_OF}
    assert of_yunikorn + "task-group-name" not in worker["annotations"]
    assert of_yunikorn + "queue" not in worker["labels"]
    assert worker["annotations"].items() < master["annotations"].items()
    _, group = planned({"scheduler": "volcano", "pod-groups-by": "backend"}, gang={"minMember": 1})
    assert group["spec"]["minTaskMember"] == {"master": 1}


@pytest.mark.parametrize(
    ("priorities", "common"), [(("a", "a"), "a"), (("a", "b"), None), ((None, None), None)]
)
def test_common_priority_of_all_pods_is_that_of_the_gang(priorities, common):
    named = zip(("master", "worker"), priorities, strict=True)
    roles = {role: {"priorityClassName": name} for role, name in named if name}
    _, group = planned({"scheduler": "volcano", "pod-groups-by": "backend"}, {**FIVE, "kfpytorch": roles})
    assert group["spec"].get("priorityClassName") == common


def with_template(metadata):
    """Return a task with a PodTemplate with this metadata, for `planned` and `refused`."""
    template = {
        "metadata": {"name": "gang", "namespace": "flyte"},
        "template": {"metadata": metadata, "spec": {"containers": [{"name": "default", "image": "unused"}]}},
    }
    return {"metadata": {"podTemplateName": "gang"}, "pod_templates": [template]}


def test_queue_label_of_a_task_that_conflicts_with_the_gang_is_rejected():
    label = {"kueue.x-k8s.io/queue-name": "b"}
    assert refused({"scheduler": "kueue", "queue": "a"}, metadata={"metadata": {"labels": label}}) == [
        'metadata.labels.kueue.x-k8s.io/queue-name="b": conflicts with the gang, which needs a; '
        "leave it out of the task, its PodTemplate and the settings, or write the same value"
    ]


@pytest.mark.parametrize(
    ("scheduler", "part", "key"),
    [
        (IN_ROOT_A, "labels", "queue"),
        (IN_ROOT_A, "annotations", "yunikorn.apache.org/queue"),
        ({"scheduler": "yunikorn"}, "labels", "applicationId"),
        ({"scheduler": "yunikorn"}, "annotations", "yunikorn.apache.org/app-id"),
        (VOLCANO_BY_BACKEND, "annotations", "scheduling.volcano.sh/queue-name"),
        (VOLCANO_BY_OPERATOR, "annotations", "scheduling.k8s.io/group-name"),
        (OPERATOR, "labels", "scheduling.x-k8s.io/pod-group"),
    ],
)
def test_template_with_other_scheduler_labels_is_rejected(scheduler, part, key):
    problems = refused(scheduler, **with_template({part: {key: "another"}}))
    fields = [f"{role} pod.{part}.{key}" for role in ("master", "worker")]
    assert [each.partition("=")[0] for each in problems] == fields


def test_pod_priority_that_conflicts_with_the_gang_is_rejected():
    roles = {"gang": {"priorityClassName": "high"}, "worker": {"priorityClassName": "low"}}
    (problem,) = refused(BACKEND, {**FIVE, "kfpytorch": roles})
    assert problem.startswith('worker pod.priorityClassName="low": conflicts with the gang, which needs high')


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{}", "\ud800", '[{"kind": "PodGroup"}]', f"[{GROUP}, {GROUP}]"),
        '[{"apiVersion": "v1", "kind": "Pod", "spec": {}}]',
        '[{"apiVersion": "a/v1/namespaces/theirs/jobs/one?/x", "kind": "PodGroup", "spec": {}}]',
        GROUP.replace("{}", '{"x": 1e999}').join("[]"),
        GROUP.replace("{}", '{"x": ' + "[" * 5_000 + "]" * 5_000 + "}").join("[]"),
    ],
)
def test_malformed_companions_annotation_creates_no_companions(text):
    job = {"metadata": {"name": "a", "annotations": {companions.ANNOTATION: text}}}
    assert list(companions.read_companions(read_job(job))) == []


def test_companions_annotation_of_an_author_is_ignored():
    theirs = {"annotations": {companions.ANNOTATION: f"[{GROUP}]", "team": "a"}}
    (job,) = planned({}, metadata={"metadata": theirs})
    annotations = job["metadata"]["annotations"]
    assert (annotations.get("team"), companions.ANNOTATION in annotations) == ("a", False)


@pytest.mark.parametrize(
    ("ganging", "key"),
    [
        (BACKEND, "yunikorn.apache.org/queue"),
        ({"scheduler": "kueue", "queue": "a"}, "yunikorn.apache.org/app-id"),
    ],
)
def test_labels_of_a_second_scheduler_are_rejected(ganging, key):
    # All pods have the label, but the problem is reported once.
    (problem,) = refused(ganging, **with_template({"labels": {key: "x"}}))
    assert problem.startswith(f'metadata.labels.{key}="x": is for yunikorn, but the gang scheduler is ')
    planned(ganging, **with_template({"labels": {key: ""}}))


def test_kueue_queue_label_of_a_task_is_kept():
    label = {"kueue.x-k8s.io/queue-name": "b"}
    job, _ = planned(BACKEND, metadata={"metadata": {"labels": label}})
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "b"
    (problem,) = refused({"scheduler": "yunikorn"}, metadata={"metadata": {"labels": label}})
    assert problem.startswith('metadata.labels.kueue.x-k8s.io/queue-name="b": is for kueue, but the gang')


def warnings(template, custom=TWO, section=None, found: Capabilities = NOTHING) -> list[str]:
    """Return the warnings about a task if `template` is the platform's default PodTemplate."""
    spec = {"containers": [{"name": "default", "image": "i"}], **template.get("spec", {})}
    stored = {"metadata": {"namespace": "flyte", "name": "t"}, "template": {**template, "spec": spec}}
    platform = settings.read({"default-pod-template-name": "t", **(section or {})})
    return [*plan(a_template(custom), a_run(), platform, [stored], found).warnings]


@pytest.mark.parametrize(
    ("template", "field", "relation", "setting"),
    [
        (COSCHEDULING, "schedulerName", "selects coscheduling", BY_BACKEND),
        (YUNIKORN, f"annotations.{TASK_GROUP}-name", "is for yunikorn", "{scheduler: yunikorn} in"),
        (IN_GROUP, "labels.scheduling.x-k8s.io/pod-group", "is for coscheduling", "{scheduler: coscheduling"),
        ({"spec": {"schedulerName": "volcano"}}, "schedulerName", "selects volcano", "{scheduler: volcano"),
    ],
)
def test_pod_template_of_a_gang_scheduler_without_a_gang_has_a_warning(template, field, relation, setting):
    (warning,) = warnings(template)
    assert field in warning.partition("=")[0]
    assert f" {relation}, but no gang is made: " in warning
    assert f"write kfpytorch.gang: {setting}" in warning


@pytest.mark.parametrize(
    ("template", "custom", "gang", "found"),
    [
        (COSCHEDULING, TWO, {"scheduler": "coscheduling", "pod-groups-by": "backend"}, NOTHING),
        (COSCHEDULING, SINGLE, {}, NOTHING),
        (COSCHEDULING, {**TWO, "kfpytorch": {"gang": {"scheduler": "none"}}}, {}, NOTHING),
        (COSCHEDULING, TWO, {}, Capabilities(operator_scheduler="scheduler-plugins-scheduler")),
        ({"spec": {"schedulerName": "bin-packing"}, "metadata": {"labels": {"team": "a"}}}, TWO, {}, NOTHING),
        ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, TWO, {}, NOTHING),
    ],
    ids=["gang", "one replica", "declined", "operator", "another scheduler", "a queue"],
)
def test_job_with_a_gang_or_without_need_of_one_has_no_warning(template, custom, gang, found):
    assert warnings(template, custom, {"kfpytorch": {"gang": gang}}, found) == []
