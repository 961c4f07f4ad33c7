"""Broken clusters: `kfpytorch doctor` reports exactly the problems of each, and their remedies.

All cases share one API server. They use separate namespaces if possible, and undo other changes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from broken_clusters import cluster_changes, doctor_runs, healthy
from broken_clusters.break_case import Break, BreakCase
from broken_clusters.breaks import BREAKS
from click.testing import CliRunner
from rig import backend, operator
from rig.api import jobs
from rig.control_plane import BACKEND, MUTATING, ControlPlane, Options
from rig.process import wait_for

from backend_plugin.cli.commands import kfpytorch
from backend_plugin.doctor import run_checks
from backend_plugin.doctor.check import Finding, Severity
from backend_plugin.doctor.registry import CHECKS

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
def cluster_in_order(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("doctor"), OPTIONS) as plane:
        operator.start(plane)
        healthy.make(plane)
        plane.namespace(NAMESPACE)
        yield plane


def format_findings(found: Sequence[Finding]) -> str:
    return "\n".join(f"{each.level.value} {each.id}: {each.sentence}\n  {each.remedy}" for each in found)


def test_healthy_cluster_has_no_findings(cluster_in_order: ControlPlane) -> None:
    found = doctor_runs.findings(cluster_in_order.kubeconfig(), doctor_runs.build_request(NAMESPACE))
    assert not found, format_findings(found)


def test_s3_store_is_checked_with_a_test_object(cluster_in_order: ControlPlane, tmp_path: Path) -> None:
    on = BreakCase(plane=cluster_in_order, namespace=NAMESPACE, folder=tmp_path)
    with cluster_changes.s3()(on) as options:
        found = doctor_runs.findings(
            cluster_in_order.kubeconfig(), doctor_runs.build_request(NAMESPACE, **(options or {}))
        )
        assert not found, format_findings(found)
        log = (tmp_path / "s3/access.log").read_text()
    done = {line.split("s3_")[1].split()[0] for line in log.splitlines() if "/kfpytorch-doctor-" in line}
    assert done >= {"PutObject", "GetObject", "DeleteObject"}
    assert [each for each in (tmp_path / "s3/objects/flyte").rglob("*") if each.is_file()] == []


@pytest.mark.parametrize("row", BREAKS, ids=str)
def test_broken_cluster_has_the_expected_findings(
    cluster_in_order: ControlPlane, row: Break, tmp_path: Path
) -> None:
    namespace = f"{NAMESPACE}-{BREAKS.index(row)}"
    cluster_in_order.namespace(namespace)
    on = BreakCase(plane=cluster_in_order, namespace=namespace, folder=tmp_path)
    with row.broken(on) as (kubeconfig, request):
        # Changes in the API server take effect with a short delay.
        found = wait_for(
            lambda: doctor_runs.findings(kubeconfig, request),
            lambda found: {each.id for each in found} == {*row.finds},
        )
    for check, remedy in row.finds.items():
        assert any(remedy in each.remedy for each in found if each.id == check), format_findings(found)


def permitted(
    plane: ControlPlane, rules: Sequence[Mapping[str, Any]], missing: Sequence[str], present: str
) -> Finding:
    """Return the one finding under these rules, once its remedy has the missing rules only."""

    def are_in_force(found: Sequence[Finding]) -> bool:
        remedies = "".join(each.remedy for each in found)
        return all(each in remedies for each in missing) and present not in remedies

    backend.permit(plane, rules)
    try:
        request = doctor_runs.build_request(NAMESPACE)
        (found,) = wait_for(lambda: doctor_runs.findings(plane.kubeconfig(BACKEND), request), are_in_force)
    finally:
        backend.permit(plane)
    assert (found.id, found.level) == (run_checks.NOT_READABLE, Severity.UNKNOWN), format_findings([found])
    return found


def test_missing_permission_is_reported_with_its_rule(cluster_in_order: ControlPlane) -> None:
    only = {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["list", "create"]}
    missing = (
        "{apiGroups: [apps], resources: [deployments], verbs: [list]}",
        '{apiGroups: [""], resources: [nodes',
        '{apiGroups: [""], resources: [pods], verbs: [create]}',
    )
    permitted(cluster_in_order, [only], missing, "pytorchjobs")


def test_render_with_server_dry_run_prints_the_admitted_job_or_the_api_error(
    cluster_in_order: ControlPlane, tmp_path: Path
) -> None:
    file = tmp_path / "task.pb"
    file.write_bytes(doctor_runs.build_request(NAMESPACE).template.SerializeToString())
    kubeconfig = str(cluster_in_order.kubeconfig())
    arguments = ["render", str(file), "--dry-run=server", "--kubeconfig", kubeconfig]
    done = CliRunner().invoke(kfpytorch, [*arguments, "--namespace", NAMESPACE, "-o", "json"])
    assert done.exit_code == 0, done.output
    (job,) = json.loads(done.stdout)
    assert (job["kind"], job["metadata"]["namespace"]) == ("PyTorchJob", NAMESPACE)
    assert "managedFields" not in job["metadata"]
    assert cluster_in_order.admin.items(jobs(NAMESPACE)) == []
    refused = CliRunner().invoke(kfpytorch, [*arguments, "--namespace", "nowhere"])
    assert refused.exit_code == 1
    assert 'is refused by the cluster (NotFound): namespaces "nowhere" not found' in refused.stderr


def test_exit_code_follows_the_most_severe_finding(cluster_in_order: ControlPlane) -> None:
    arguments = ["doctor", "--kubeconfig", str(cluster_in_order.kubeconfig()), "--namespace"]
    healthy_run = CliRunner().invoke(kfpytorch, [*arguments, NAMESPACE])
    assert healthy_run.exit_code == 0, healthy_run.output
    assert healthy_run.stdout.splitlines()[-1].endswith(
        f" of {len(CHECKS)} checks made: no problems found"
    ), healthy_run.output
    failed_run = CliRunner().invoke(kfpytorch, [*arguments, "nowhere", "-o", "json"])
    report = json.loads(failed_run.stdout)
    assert (failed_run.exit_code, report["exit_code"]) == (1, 1)
    assert [each["id"] for each in report["findings"]] == ["namespace-missing"]
    assert report["about"]["operator"] == "kubeflow/training-operator 1.9.3"
    assert report["about"]["flyte"] == "flyte/flyte-binary 1.16.8"


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task[0].stem}-{task[1]}")
def test_tasks_have_no_findings_unless_a_replica_is_too_large(
    cluster_in_order: ControlPlane, task: tuple[Path, str]
) -> None:
    path, name = task
    arguments = [str(path), name, "--image", "example.org/image:1", "--namespace", NAMESPACE]
    kubeconfig = str(cluster_in_order.kubeconfig())
    done = CliRunner().invoke(kfpytorch, ["doctor", *arguments, "--kubeconfig", kubeconfig, "-o", "json"])
    ids = [each["id"] for each in json.loads(done.stdout)["findings"]]
    assert ids == (["replica-too-large"] * 2 if name == TOO_LARGE else []), done.stdout


def test_chart_rules_permit_all_checks_except_secrets(cluster_in_order: ControlPlane) -> None:
    found = permitted(cluster_in_order, backend.CHART_RULES["doctor"], ["resources: [secrets]"], "nodes")
    assert found.remedy.count("apiGroups: [") == 1
