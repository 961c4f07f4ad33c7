"""Broken clusters: `kfpytorch doctor` reports exactly the problems of each, and their remedies.

All cases share one API server. They use separate namespaces if possible, and undo other changes.
"""

import json
from pathlib import Path

import pytest
from broken_clusters import cluster_changes, healthy
from broken_clusters.break_case import build_request, list_findings
from broken_clusters.breaks import BREAKS
from broken_clusters.cluster_changes import BreakCase
from click.testing import CliRunner
from rig import backend, operator
from rig.control_plane import BACKEND, MUTATING, ControlPlane, Options
from rig.process import wait_for

from backend_plugin.cli.commands import kfpytorch
from backend_plugin.doctor import run_checks
from backend_plugin.doctor.check import Severity

NAMESPACE = "doctor"
ROOT = Path(__file__).parents[2]
# The cluster examples, and a task that deliberately requests too much.
TOO_LARGE = "asks_too_much"
TASKS = (
    (ROOT / "tests/cluster/training_tasks.py", TOO_LARGE),
    (ROOT / "examples/01_digits_elastic.py", "train"),
    (ROOT / "examples/02_digits_replicas.py", "train"),
    *((ROOT / "examples/03_guide_snippets.py", f"{name}_training") for name in ("distributed", "elastic")),
    *((ROOT / "examples/05_pod_template.py", f"train_{name}") for name in ("elastically", "on_replicas")),
)
OPTIONS = Options(controllers=False, api_server=MUTATING)


@pytest.fixture(scope="module")
def cluster_in_order(programs, tmp_path_factory):
    with ControlPlane(tmp_path_factory.mktemp("doctor"), OPTIONS) as plane:
        operator.start(plane)
        healthy.make(plane)
        plane.namespace(NAMESPACE)
        yield plane


def run_doctor(plane, *arguments):
    options = ["--kubeconfig", str(plane.kubeconfig()), "--namespace", NAMESPACE, "--output", "json"]
    return json.loads(CliRunner().invoke(kfpytorch, ["doctor", *options, *arguments]).stdout)


def test_healthy_cluster_has_no_findings(cluster_in_order):
    report = run_doctor(cluster_in_order)
    assert (report["findings"], report["exit_code"]) == ([], 0)
    assert report["about"]["operator"] == "kubeflow/training-operator 1.9.3"
    assert report["about"]["flyte"] == "flyte/flyte-binary 1.16.8"


def test_s3_store_is_checked_with_a_test_object(cluster_in_order, tmp_path):
    on = BreakCase(plane=cluster_in_order, namespace=NAMESPACE, folder=tmp_path)
    with cluster_changes.s3()(on) as options:
        found = list_findings(cluster_in_order.kubeconfig(), build_request(NAMESPACE, **(options or {})))
        assert not found
        log = (tmp_path / "s3/access.log").read_text()
    done = {line.split("s3_")[1].split()[0] for line in log.splitlines() if "/kfpytorch-doctor-" in line}
    assert done >= {"PutObject", "GetObject", "DeleteObject"}
    assert [each for each in (tmp_path / "s3/objects/flyte").rglob("*") if each.is_file()] == []


@pytest.mark.parametrize("row", BREAKS, ids=str)
def test_broken_cluster_has_the_expected_findings(cluster_in_order, row, tmp_path):
    namespace = f"{NAMESPACE}-{BREAKS.index(row)}"
    cluster_in_order.namespace(namespace)
    on = BreakCase(plane=cluster_in_order, namespace=namespace, folder=tmp_path)
    with row.broken(on) as (kubeconfig, request):
        # Changes in the API server take effect with a short delay.
        found = wait_for(
            lambda: list_findings(kubeconfig, request),
            lambda found: {each.id for each in found} == {*row.finds},
        )
    for check, remedy in row.finds.items():
        assert any(remedy in each.remedy for each in found if each.id == check), found


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task[0].stem}-{task[1]}")
def test_tasks_have_no_findings_unless_a_replica_is_too_large(
    cluster_in_order: ControlPlane, task: tuple[Path, str]
) -> None:
    path, name = task
    report = run_doctor(cluster_in_order, str(path), name, "--image", "example.org/image:1")
    ids = [each["id"] for each in report["findings"]]
    assert ids == (["replica-too-large"] * 2 if name == TOO_LARGE else []), report


def test_chart_rules_permit_all_checks_except_secrets(cluster_in_order):
    secrets = "resources: [secrets]"
    backend.permit(cluster_in_order, backend.CHART_RULES["doctor"])
    try:
        request = build_request(NAMESPACE)
        # Rules are in force after a short delay.
        (found,) = wait_for(
            lambda: list_findings(cluster_in_order.kubeconfig(BACKEND), request),
            lambda found: [secrets in each.remedy and "nodes" not in each.remedy for each in found] == [True],
        )
    finally:
        backend.permit(cluster_in_order)
    assert (found.id, found.level) == (run_checks.NOT_READABLE, Severity.UNKNOWN)
    assert found.remedy.count("apiGroups: [") == 1
