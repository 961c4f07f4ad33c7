"""Tests of PodTemplates with content that reaches no task, names no running scheduler or makes no gang."""

import json
from typing import Any

import pytest
from remedy_cases import COSCHEDULING as SERVED
from remedy_cases import build_object, deployment, operator

from backend_plugin.core import settings
from backend_plugin.doctor.check import Violation
from backend_plugin.doctor.checks import templates
from backend_plugin.doctor.facts import Facts, PlannedTask, Subject

CHECKS = {check.id: check for check in templates.CHECKS}
YUNIKORN = "yunikorn.apache.org/"
GROUP = {"name": "worker", "minMember": 2, "minResource": {"cpu": "1"}}


def a_template(name: str = "gang-scheduling-template", **template: Any) -> dict[str, Any]:
    return build_object(name, "n", template=template)


def run_check(check: str, template: Any, *deployments: Any, **fields: Any) -> list[Violation]:
    objects = {Subject.TEMPLATES: [template], Subject.DEPLOYMENTS: [*deployments]}
    platform = settings.read(fields.pop("platform", {}))
    return list(CHECKS[check].judge(Facts(namespace="n", settings=platform, objects=objects, **fields)))


SAYS = {"name": "main", "image": "a:1", "env": [{"name": "A"}], "imagePullPolicy": "Always", "resources": {}}


@pytest.mark.parametrize(
    ("containers", "is_found"),
    [
        ([SAYS], True),
        ([{**SAYS, "name": "default"}], False),
        ([{**SAYS, "name": "primary"}], False),
        ([SAYS, {"name": "default", "image": "a:1"}], False),
        # The minimum that the API server requires and stores.
        ([{key: value for key, value in SAYS.items() if key != "env"}], False),
    ],
)
def test_template_container_that_applies_to_no_task_is_found(containers, is_found) -> None:
    violations = run_check("template-containers", a_template(spec={"containers": containers}))
    assert bool(violations) is is_found


def test_only_templates_that_are_in_use_are_checked() -> None:
    wrong = {"containers": [SAYS]}
    for name, fields in (
        ("kai-template", {}),
        ("gone", {"platform": {"default-pod-template-name": "gone"}}),
        ("mine", {"task": PlannedTask(template="mine")}),
    ):
        assert run_check("template-containers", a_template(name, spec=wrong), **fields)
        assert not run_check("template-containers", a_template("anothers", spec=wrong), **fields)


COSCHEDULING = {"spec": {"schedulerName": SERVED}}
SCHEDULER = deployment("s", "some:1", f"--scheduler-name={SERVED}")
OPERATOR = operator(f"--gang-scheduler-name={SERVED}")


def gang(**options: Any) -> dict[str, Any]:
    return {"platform": {"kfpytorch": {"gang": options}}}


OF_YUNIKORN = {"spec": {"schedulerName": "yunikorn"}}
GROUPS = {f"{YUNIKORN}task-groups": json.dumps([GROUP])}
WITH_GROUPS = {"metadata": {"annotations": GROUPS}}
YUNIKORN_SCHEDULER = deployment("s", "yunikorn:1", "--scheduler-name=yunikorn")
BY_BACKEND = {"pod-groups-by": "backend"}


@pytest.mark.parametrize(
    ("template", "deployments", "fields", "is_found"),
    [
        (COSCHEDULING, [SCHEDULER], {}, True),
        (COSCHEDULING, [SCHEDULER], gang(scheduler="kueue", queue="q"), True),
        (COSCHEDULING, [SCHEDULER, OPERATOR], {}, False),
        (COSCHEDULING, [SCHEDULER], gang(scheduler="coscheduling", **BY_BACKEND), False),
        (COSCHEDULING, [SCHEDULER], gang(scheduler="auto"), False),
        (COSCHEDULING, [SCHEDULER], gang(**{"allowed-schedulers": {"coscheduling": BY_BACKEND}}), False),
        (OF_YUNIKORN, [YUNIKORN_SCHEDULER], {}, True),
        ({**OF_YUNIKORN, **WITH_GROUPS}, [YUNIKORN_SCHEDULER], {}, False),
        ({"spec": {"schedulerName": "kai-scheduler"}}, [deployment("s", "kai-scheduler:1")], {}, False),
        ({"spec": {"schedulerName": "mine"}}, [deployment("s", "s:1", "--scheduler-name=mine")], {}, False),
    ],
)
def test_scheduler_name_without_a_gang_is_found(template, deployments, fields, is_found) -> None:
    assert bool(run_check("template-gang", a_template(**template), *deployments, **fields)) is is_found


ONE_GROUP = "the pods of all tasks would be in one group"


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"annotations": {f"{YUNIKORN}task-group-name": ""}}, "it is empty"),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, ONE_GROUP),
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, ONE_GROUP),
    ],
)
def test_template_annotation_without_effect_on_gangs_is_found_with_the_reason(metadata, why) -> None:
    (violation,) = run_check("template-placeholder", a_template(metadata=metadata))
    assert why in violation.sentence
    (part,) = metadata
    gone = {"template": {"metadata": {part: dict.fromkeys(metadata[part])}}}
    patch = "kubectl patch podtemplate gang-scheduling-template -n n --type=merge -p"
    assert violation.remedy.startswith(f"{patch} '{json.dumps(gone)}'  # ")


def test_template_that_may_form_a_gang_has_no_finding() -> None:
    in_group = {**GROUPS, f"{YUNIKORN}task-group-name": "worker"}
    labels = ({}, {"team": ""}, {f"{YUNIKORN}queue": "root.team"})
    for metadata in ({"annotations": in_group}, *({"labels": each} for each in labels)):
        assert not run_check("template-placeholder", a_template(metadata=metadata))
