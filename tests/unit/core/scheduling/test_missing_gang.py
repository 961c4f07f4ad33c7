"""Tests for warnings about jobs whose pods select a gang scheduler but that do not form a gang."""

from typing import Any

import pytest
from builders import a_run, a_template

from backend_plugin.core import settings
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities

TWO = {"workerReplicas": {"replicas": 2}}
ONE = {"workerReplicas": {"replicas": 0}, "masterReplicas": {"replicas": 1}}
COSCHEDULING = {"spec": {"schedulerName": "scheduler-plugins-scheduler"}}
YUNIKORN = {
    "metadata": {
        "annotations": {"yunikorn.apache.org/task-group-name": "", "yunikorn.apache.org/task-groups": ""}
    }
}


def warnings(
    template: dict[str, Any],
    custom: dict[str, Any] = TWO,
    section: dict[str, Any] | None = None,
    found: Capabilities = NOTHING,
) -> list[str]:
    """Return the warnings about a task if `template` is the platform's default PodTemplate."""
    spec = {"containers": [{"name": "default", "image": "i"}], **template.get("spec", {})}
    stored = {"metadata": {"namespace": "flyte", "name": "t"}, "template": {**template, "spec": spec}}
    platform = settings.read({"default-pod-template-name": "t", **(section or {})})
    return [*plan(a_template(custom), a_run(), platform, [stored], found).warnings]


@pytest.mark.parametrize(
    ("template", "field", "setting"),
    [
        (
            COSCHEDULING,
            "schedulerName",
            "write kfpytorch.gang: {scheduler: coscheduling, pod-groups-by: backend} in the settings, or",
        ),
        (
            YUNIKORN,
            "annotations.yunikorn.apache.org/task-group-name",
            "write kfpytorch.gang: {scheduler: yunikorn} in the settings",
        ),
        (
            {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}},
            "labels.scheduling.x-k8s.io/pod-group",
            "scheduler: coscheduling",
        ),
        ({"spec": {"schedulerName": "volcano"}}, "schedulerName", "scheduler: volcano"),
    ],
)
def test_pod_template_of_a_gang_scheduler_without_a_gang_has_a_warning(
    template: dict[str, Any], field: str, setting: str
) -> None:
    (warning,) = warnings(template)
    assert field in warning.partition("=")[0]
    assert setting in warning


@pytest.mark.parametrize(
    ("custom", "gang", "found"),
    [
        (TWO, {"scheduler": "coscheduling", "pod-groups-by": "backend"}, NOTHING),
        (ONE, {}, NOTHING),
        ({**TWO, "kfpytorch": {"gang": {"scheduler": "none"}}}, {}, NOTHING),
        (TWO, {}, Capabilities(operator_scheduler="scheduler-plugins-scheduler")),
    ],
    ids=["gang", "one replica", "declined", "operator"],
)
def test_job_with_a_gang_or_without_need_of_one_has_no_warning(
    custom: dict[str, Any], gang: dict[str, Any], found: Capabilities
) -> None:
    assert warnings(COSCHEDULING, custom, {"kfpytorch": {"gang": gang}}, found) == []


def test_pods_of_other_schedulers_have_no_warning() -> None:
    assert warnings({"spec": {"schedulerName": "bin-packing"}, "metadata": {"labels": {"team": "a"}}}) == []
    assert warnings({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}) == []
