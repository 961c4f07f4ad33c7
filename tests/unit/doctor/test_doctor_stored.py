"""Tests of the comparison of a sent object with the stored one: changes, and additions of the cluster."""

from typing import Any

import pytest

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.doctor.checks import job
from backend_plugin.doctor.cluster_reader import ClusterReader
from backend_plugin.doctor.facts import DryRunReply, Facts, PlannedTask, RolePods
from backend_plugin.kube.api_errors import ApiError, ApiStatus

CHECKS = {check.id: check for check in job.CHECKS}


def a_trainer(**requests: str) -> dict[str, Any]:
    return {"name": "pytorch", "resources": {"requests": requests}}


SENT = {
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {"containers": [a_trainer(memory="1024Mi")], "tolerations": [{"key": "x"}], "priority": 0},
}


def stored(**spec: Any) -> dict[str, Any]:
    return {"metadata": SENT["metadata"], "spec": {**SENT["spec"], **spec}}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"},
        {"containers": [{"name": "proxy"}, a_trainer(memory="1Gi")]},
        {"tolerations": [{"key": "y"}, {"key": "x"}]},
        {"priority": None},
    ],
)
def test_added_field_is_no_change(spec: dict[str, Any]) -> None:
    assert list_sentences(stored(**spec)) == []


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        ({"tolerations": []}, "spec.tolerations[0] is None instead of {'key': 'x'}"),
        ({"schedulerName": "yunikorn"}, "spec.schedulerName is 'yunikorn', which the job does not set"),
        (
            {"containers": [a_trainer(memory="2Gi")]},
            "spec.containers[pytorch].resources.requests.memory is '2Gi' instead of '1024Mi'",
        ),
        (
            {"containers": [a_trainer(memory="1Gi", cpu="1")]},
            "spec.containers[pytorch] requests cpu, which the job does not set",
        ),
    ],
)
def test_change_is_reported_with_its_path(spec: dict[str, Any], change: str) -> None:
    (sentence,) = list_sentences(stored(**spec))
    assert sentence == f"the cluster changes the worker pod before it is stored: {change}"


def list_sentences(stored: dict[str, Any], sent: dict[str, Any] = SENT) -> list[str]:
    facts = Facts(
        namespace="n",
        task=PlannedTask(roles=[RolePods(name="worker", count=1, needed=1, pod=sent)]),
        pod_replies={"worker": DryRunReply(stored=stored)},
    )
    return [each.sentence for each in CHECKS["pod-changed"].judge(facts)]


def test_many_changes_are_summarized() -> None:
    sent = {**SENT, "metadata": {"labels": {str(number): "x" for number in range(8)}}}
    (sentence,) = list_sentences({**sent, "metadata": {}}, sent)
    assert sentence.endswith(", and 3 more")


class RefusingApi:
    """An API client whose requests are rejected, because the runtime of a TrainJob does not exist."""

    async def send_once(self, *_: object) -> bytes:
        message = 'TrainingRuntime "j" must be created before the TrainJob'
        raise ApiError(403, ApiStatus(reason="Forbidden", message=message))


@pytest.mark.parametrize(("kind", "is_stored"), [("TrainJob", True), ("PyTorchJob", False)])
async def test_job_rejected_only_for_missing_dry_run_prerequisites_is_accepted(kind, is_stored) -> None:
    dialect = DIALECTS[kind]
    manifest = dialect.build_probe({"name": "j", "namespace": "n"})
    reply = await ClusterReader(RefusingApi()).dry_run_create(manifest, dialect)
    assert (reply.stored == manifest, reply.reason) == ((True, "") if is_stored else (False, "Forbidden"))
