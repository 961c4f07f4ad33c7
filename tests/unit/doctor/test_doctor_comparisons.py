"""Tests of versions from image tags and labels, and of the comparison of sent with stored objects."""

from typing import Any

import pytest
from remedy_cases import build_object

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.doctor import deployments, summary
from backend_plugin.doctor.checks import flyte, job
from backend_plugin.doctor.cluster_reader import ClusterReader
from backend_plugin.doctor.facts import DryRunReply, Facts, PlannedTask, ReadFailure, RolePods, Subject
from backend_plugin.doctor.operators import table
from backend_plugin.kube.api_errors import ApiError, ApiStatus

FLYTE = {check.id: check for check in flyte.CHECKS}
OPERATOR = {check.id: check for check in table.CHECKS}


def runs(image: str, label: str = "", *beside: str, args: tuple[str, ...] = ()) -> dict[str, Any]:
    containers = [*({"image": each} for each in beside), {"image": image, "args": [*args]}]
    labels = {"app.kubernetes.io/version": label} if label else {}
    spec = {"template": {"spec": {"containers": containers}}}
    return build_object("d", "n", metadata={"labels": labels}, spec=spec)


@pytest.mark.parametrize(
    ("image", "label", "version"),
    [
        ("h:5000/training-operator:v1.9.3", "", (1, 9, 3)),
        ("training-operator:1.9", "", (1, 9, 0)),
        ("training-operator:v1.9.3-rc1@sha256:12", "1.0.0", (1, 9, 3)),
        ("training-operator@sha256:12", "1.8.1", (1, 8, 1)),
        ("training-operator:latest", "v1.7", (1, 7, 0)),
        ("h:5000/training-operator", "", None),
    ],
)
def test_version_is_read_from_the_tag_or_else_the_label(image, label, version) -> None:
    assert deployments.find_version(runs(image, label)) == version


@pytest.mark.parametrize(
    ("image", "label", "version"),
    [
        ("h:5000/flyte-binary:v1.16.8", "", (1, 16, 8)),
        ("flyte-binary:v1.16.0", "1.16.0", (1, 16, 0)),
        # Newer charts have this label too.
        ("flyte-binary@sha256:12", "1.16.0", None),
        ("flyte-binary@sha256:12", "1.16.7", (1, 16, 7)),
        ("flyte-binary:latest", "v1.15.0", (1, 15, 0)),
        # The patch number is not known.
        ("flyte-binary:1.16", "", None),
        ("flyte-binary:latest", "1.16", None),
    ],
)
def test_flyte_version_is_read_from_its_own_tag_or_a_non_chart_label(image, label, version) -> None:
    assert deployments.find_flyte_version(runs(image, label, "cloud-sql-proxy:2.8.0")) == version


def test_webhook_of_flyte_core_is_not_a_second_propeller() -> None:
    propeller = runs("flytepropeller:v1.16.6", args=("--config", "/etc/flyte/config/*.yaml"))
    webhook = runs("flytepropeller:v1.16.6", args=("webhook", "--config", "/etc/flyte/config/*.yaml"))
    facts = Facts(namespace="n", objects={Subject.DEPLOYMENTS: [propeller, webhook]})
    assert len([*FLYTE["flyte-outdated"].judge(facts)]) == 1


@pytest.mark.parametrize(
    ("image", "ids", "line"),
    [
        ("flyte-binary-release:v1.16.7", [], "n/d 1.16.7"),
        ("flytepropeller:v2.0.0", [], "n/d 2.0.0"),
        ("flytepropeller:v1.16.6", ["flyte-outdated"], "n/d 1.16.6"),
        ("flytepropeller:nightly", [], "n/d (unknown version)"),
        ("flyteconnector:v1.0.0", [], "none found"),
    ],
)
def test_flyte_version_is_compared_with_the_required_version(image: str, ids: list[str], line: str) -> None:
    facts = Facts(namespace="n", objects={Subject.DEPLOYMENTS: [runs(image)]})
    assert ["flyte-outdated" for _ in FLYTE["flyte-outdated"].judge(facts)] == ids
    assert summary.build_lines(facts)["flyte"] == line


def test_missing_webhook_is_reported_only_if_the_operator_may_exist() -> None:
    for fields, is_found in (
        ({}, False),
        ({"objects": {Subject.DEPLOYMENTS: [runs("training-operator:v1.9.3")]}}, True),
        ({"unseen": {Subject.DEPLOYMENTS: ReadFailure(reason="forbidden")}}, True),
    ):
        facts = Facts(namespace="n", invalid_reply=DryRunReply(stored={}), **fields)
        assert bool([*OPERATOR["webhook-missing"].judge(facts)]) is is_found


CHECKS = {check.id: check for check in job.CHECKS}


def a_trainer(**requests: str) -> dict[str, Any]:
    return {"name": "pytorch", "resources": {"requests": requests}}


SENT = {
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {"containers": [a_trainer(memory="1024Mi")], "tolerations": [{"key": "x"}], "priority": 0},
}


def stored(**spec: Any) -> dict[str, Any]:
    return {"metadata": SENT["metadata"], "spec": {**SENT["spec"], **spec}}


def test_added_field_is_no_change() -> None:
    assert list_sentences(stored(dnsPolicy="ClusterFirst", schedulerName="default-scheduler")) == []
    assert list_sentences(stored(containers=[{"name": "proxy"}, a_trainer(memory="1Gi")])) == []
    assert list_sentences(stored(tolerations=[{"key": "y"}, {"key": "x"}], priority=None)) == []


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
    task = PlannedTask(roles=[RolePods(name="worker", count=1, needed=1, pod=sent)])
    facts = Facts(namespace="n", task=task, pod_replies={"worker": DryRunReply(stored=stored)})
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
