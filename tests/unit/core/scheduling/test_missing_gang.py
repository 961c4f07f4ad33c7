"""Tests for warnings about jobs whose pods select a gang scheduler but that do not form a gang."""

import pytest
from builders import a_run, a_template

from backend_plugin.core import settings
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities

TWO = {"workerReplicas": {"replicas": 2}}
ONE = {"workerReplicas": {"replicas": 0}, "masterReplicas": {"replicas": 1}}
COSCHEDULING = {"spec": {"schedulerName": "scheduler-plugins-scheduler"}}


def warnings(
    template,
    custom=TWO,
    section=None,
    found: Capabilities = NOTHING,
) -> list[str]:
    """Return the warnings about a task if `template` is the platform's default PodTemplate."""
    spec = {"containers": [{"name": "default", "image": "i"}], **template.get("spec", {})}
    stored = {"metadata": {"namespace": "flyte", "name": "t"}, "template": {**template, "spec": spec}}
    platform = settings.read({"default-pod-template-name": "t", **(section or {})})
    return [*plan(a_template(custom), a_run(), platform, [stored], found).warnings]


GROUP = {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}}
TASK_GROUP = "yunikorn.apache.org/task-group"
BY_BACKEND = "{scheduler: coscheduling, pod-groups-by: backend} in the settings, or"
YUNIKORN = {"metadata": {"annotations": {f"{TASK_GROUP}-name": "", f"{TASK_GROUP}s": ""}}}


@pytest.mark.parametrize(
    ("template", "field", "relation", "setting"),
    [
        (COSCHEDULING, "schedulerName", "selects coscheduling", BY_BACKEND),
        (YUNIKORN, f"annotations.{TASK_GROUP}-name", "is for yunikorn", "{scheduler: yunikorn} in"),
        (GROUP, "labels.scheduling.x-k8s.io/pod-group", "is for coscheduling", "{scheduler: coscheduling"),
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
        (COSCHEDULING, ONE, {}, NOTHING),
        (COSCHEDULING, {**TWO, "kfpytorch": {"gang": {"scheduler": "none"}}}, {}, NOTHING),
        (COSCHEDULING, TWO, {}, Capabilities(operator_scheduler="scheduler-plugins-scheduler")),
        ({"spec": {"schedulerName": "bin-packing"}, "metadata": {"labels": {"team": "a"}}}, TWO, {}, NOTHING),
        ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, TWO, {}, NOTHING),
    ],
    ids=["gang", "one replica", "declined", "operator", "another scheduler", "a queue"],
)
def test_job_with_a_gang_or_without_need_of_one_has_no_warning(template, custom, gang, found):
    assert warnings(template, custom, {"kfpytorch": {"gang": gang}}, found) == []
