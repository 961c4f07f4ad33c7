"""Manifests of a plan, and the pods that result from them, pass the admission of the embedded cluster."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from backend_plugin.embedded.admission import admit_pod, admit_service
from backend_plugin.embedded.operators.base import CreatePod, CreateService, JobSnapshot
from backend_plugin.embedded.operators.pytorchjob import reconcile

GOLDEN = Path(__file__).parents[2] / "golden"
PLANS = sorted(path.parent.name for path in GOLDEN.glob("*/plan.yaml"))


def jobs(name: str) -> list[dict[str, Any]]:
    manifests = yaml.safe_load_all((GOLDEN / name / "plan.yaml").read_text())
    return [manifest for manifest in manifests if manifest["kind"] == "PyTorchJob"]


@pytest.mark.parametrize("name", PLANS)
def test_pods_and_services_of_a_planned_job_are_admitted(name: str) -> None:
    """Suspended jobs are resumed first."""
    for job in jobs(name):
        job["spec"]["runPolicy"].pop("suspend", None)
        stored = {**job, "metadata": {**job["metadata"], "uid": "uid"}}
        snapshot = JobSnapshot(
            job=stored, pods=[], services=[], now=datetime(2026, 1, 1, tzinfo=timezone.utc)
        )
        actions = reconcile(snapshot).actions
        pods = [admit_pod(action.manifest) for action in actions if isinstance(action, CreatePod)]
        services = [admit_service(action.manifest) for action in actions if isinstance(action, CreateService)]
        assert (
            len(pods)
            == len(services)
            == sum(role["replicas"] for role in job["spec"]["pytorchReplicaSpecs"].values())
        )
