"""Tests of the versions that image tags and labels show."""

from typing import Any

import pytest
from remedy_cases import build_object

from backend_plugin.doctor import deployments, summary
from backend_plugin.doctor.checks import flyte
from backend_plugin.doctor.facts import DryRunReply, Facts, ReadFailure, Subject
from backend_plugin.doctor.operators import table

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
        ("training-operator:sha-4f2e", "", None),
    ],
)
def test_version_is_read_from_the_tag_or_else_the_label(
    image: str, label: str, version: tuple[int, int, int] | None
) -> None:
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
def test_flyte_version_is_read_from_its_own_tag_or_a_non_chart_label(
    image: str, label: str, version: tuple[int, int, int] | None
) -> None:
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


@pytest.mark.parametrize(
    ("fields", "is_found"),
    [
        ({}, False),
        ({"objects": {Subject.DEPLOYMENTS: [runs("training-operator:v1.9.3")]}}, True),
        ({"unseen": {Subject.DEPLOYMENTS: ReadFailure(reason="forbidden")}}, True),
    ],
)
def test_missing_webhook_is_reported_only_if_the_operator_may_exist(fields: Any, is_found: bool) -> None:
    facts = Facts(namespace="n", invalid_reply=DryRunReply(stored={}), **fields)
    assert bool([*OPERATOR["webhook-missing"].judge(facts)]) is is_found
