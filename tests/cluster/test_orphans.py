"""Orphans with the real API server, garbage collector, operator and FlytePropeller."""

import asyncio
import hashlib
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import workflows
from rig import backend, operator
from rig.api import jobs, pods
from rig.backend import KFPYTORCH, RULES, Backend
from rig.control_plane import BACKEND, ControlPlane, dumped
from rig.control_plane import Options as PlaneOptions
from rig.process import wait_until
from rig.propeller import NAMESPACE, PropellerOptions, RealPropeller, list_owned

from backend_plugin.kube.cluster import KubernetesCluster
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.shell.allowlist import Allowlist
from backend_plugin.shell.metrics import Metrics
from backend_plugin.shell.orphans import OrphanCollector, OrphanFinder, ScanSchedule
from backend_plugin.shell.output_prefixes import OutputPrefixes

JOB = "f1-n0-0-0123456789ab"
PREFIX = "s3://bucket/f1/n0/0"
WITHOUT_WORKFLOWS = [rule for rule in RULES if rule["resources"] != ["flyteworkflows"]]
FLYTES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "flyteworkflows.flyte.lyft.com"},
    "spec": {
        "group": "flyte.lyft.com",
        "scope": "Namespaced",
        "names": {"kind": "FlyteWorkflow", "plural": "flyteworkflows", "singular": "flyteworkflow"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


def gc(config: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    command = [KFPYTORCH, "gc", "--kubeconfig", config, "--confirm-after", "200ms", "-o", "json", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def list_results(done: "subprocess.CompletedProcess[str]") -> Sequence[tuple[str, str]]:
    assert done.returncode == 0, done.stderr
    return [(each["name"], each["result"]) for each in json.loads(done.stdout)]


# ---- jobs of deleted executions


@pytest.fixture
def propeller(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPropeller]:
    """A propeller whose server may not read FlyteWorkflows, so that its jobs have no owner."""
    backend.permit(plane, WITHOUT_WORKFLOWS)
    with Backend(plane, tmp_path_factory.mktemp("orphans")) as served:
        options = PropellerOptions(connector=served.endpoint)
        with RealPropeller(plane, tmp_path_factory.mktemp("propeller"), options) as propeller:
            yield propeller
    backend.permit(plane)


def test_orphans_of_a_deleted_execution_are_found_and_deleted(
    plane: ControlPlane, propeller: RealPropeller
) -> None:
    left, lives = (propeller.start(workflows.says_nothing) for _ in range(2))
    for execution in (left, lives):
        propeller.until_shown(execution, "RUNNING")
    (job,) = list_owned(plane.admin, jobs(NAMESPACE), left)
    assert "ownerReferences" not in job["metadata"]
    propeller.process.kill()
    path = f"/apis/flyte.lyft.com/v1alpha1/namespaces/{NAMESPACE}/flyteworkflows/{left.name}"
    plane.admin.patch(path, {"metadata": {"finalizers": None}})
    plane.admin.delete(path)
    wait_until(
        lambda: propeller.find_execution(left) is None, 30, lambda: str(propeller.find_execution(left))
    )

    config, here = plane.kubeconfig(BACKEND), ("--namespace", NAMESPACE, "--older-than", "0")
    refused = gc(config, *here, "--delete")
    assert (refused.returncode, json.loads(refused.stdout)) == (1, [])
    assert "{apiGroups: [flyte.lyft.com], resources: [flyteworkflows], verbs: [get]}" in refused.stderr
    backend.permit(plane)
    name = job["metadata"]["name"]
    assert list_results(gc(config, "--namespace", NAMESPACE)) == []
    assert list_results(gc(config, *here)) == [(name, "orphan")]
    assert list_results(gc(config, *here, "--delete")) == [(name, "deleted")]
    wait_until(lambda: not list_owned(plane.admin, jobs(NAMESPACE), left), 60, lambda: "its job is left")
    wait_until(lambda: not list_owned(plane.admin, pods(NAMESPACE), left), 60, lambda: "its pods are left")
    assert [each["status"]["phase"] for each in list_owned(plane.admin, pods(NAMESPACE), lives)] == [
        "Running"
    ] * 2

    propeller.process.start()
    propeller.abort(lives)
    wait_until(lambda: not list_owned(plane.admin, jobs(NAMESPACE), lives), 60, lambda: "its job is left")


# ---- API servers without and with the CRD of Flyte


def test_orphans_and_owners_require_the_flyteworkflow_crd(tmp_path: Path) -> None:
    with ControlPlane(tmp_path, PlaneOptions(controllers=False)) as plane:
        plane.crds(operator.crds())
        plane.namespace("ns")
        backend.permit(plane)
        config = plane.kubeconfig(BACKEND)
        plane.admin.create(ours())
        alone = gc(config, "--older-than", "0", "--delete")
        assert (alone.returncode, json.loads(alone.stdout)) == (1, [])
        assert "executions of Flyte are in another cluster" in alone.stderr
        plane.crds([dumped(FLYTES, tmp_path / "flyte.yaml")])

        workflow = {"apiVersion": "flyte.lyft.com/v1alpha1", "kind": "FlyteWorkflow", "metadata": {}}
        made = plane.admin.create({**workflow, "metadata": {"name": "f1", "namespace": "ns"}})
        asyncio.run(asked_about(config, lambda: bool(job_of(plane)["metadata"].get("ownerReferences"))))
        (owner,) = job_of(plane)["metadata"]["ownerReferences"]
        assert owner["uid"] == made["metadata"]["uid"]
        assert list_results(gc(config, "--older-than", "0", "--delete")) == []

        plane.admin.delete(jobs("ns", JOB))
        plane.admin.delete("/apis/flyte.lyft.com/v1alpha1/namespaces/ns/flyteworkflows/f1")
        plane.admin.create(ours())
        mark = "kfpytorch.flyte.org/workflow-location"
        asyncio.run(asked_about(config, lambda: mark in job_of(plane)["metadata"]["annotations"]))
        assert list_results(gc(config, "--older-than", "0", "--delete")) == []
        plane.admin.patch(jobs("ns", JOB), {"metadata": {"annotations": {mark: None}}})
        assert list_results(gc(config, "--older-than", "0", "--delete")) == [(JOB, "deleted")]
        assert plane.admin.get(jobs("ns", JOB)) is None


def ours() -> dict[str, Any]:
    """Return a job as a server creates it that cannot read its FlyteWorkflow."""
    container = {"name": "pytorch", "image": "nothing:1"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": JOB,
            "namespace": "ns",
            "labels": {"kfpytorch.flyte.org/job": hashlib.sha256(PREFIX.encode()).hexdigest()[:40]},
            "annotations": {
                "kfpytorch.flyte.org/task": json.dumps({"execution": "f1", "nodeId": "n0"}),
                "kfpytorch.flyte.org/output-prefix": PREFIX,
            },
        },
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": {"spec": {"containers": [container]}}}
            }
        },
    }


def job_of(plane: ControlPlane) -> dict[str, Any]:
    found = plane.admin.get(jobs("ns", JOB))
    assert found is not None
    return found


async def asked_about(config: Path, settled: Callable[[], bool]) -> None:
    """Report the job to the orphan search until `settled` returns True."""

    async def asking(here: OrphanFinder) -> None:
        orphans = OrphanCollector(
            here, Metrics(), ScanSchedule(look=timedelta(0), settle=timedelta(seconds=0.05))
        )
        life = asyncio.create_task(orphans.run())
        try:
            while not settled():
                (job,) = await here.executions.list_jobs()
                orphans.mark_in_use(job)
                await asyncio.sleep(0.1)
        finally:
            life.cancel()
            await asyncio.wait([life])

    await run_with_finder(config, asking)


async def run_with_finder(config: Path, do: Callable[[OrphanFinder], Awaitable[None]]) -> None:
    cluster = await KubernetesCluster.open(KubernetesOptions(kubeconfig=str(config)))
    here = OrphanFinder(
        cluster=cluster,
        executions=cluster,
        allowed=Allowlist(prefixes=OutputPrefixes(["s3://*"])),
        now=lambda: datetime.now(timezone.utc),
        least_age=timedelta(0),
    )
    try:
        await asyncio.wait_for(do(here), 60)
    finally:
        await cluster.close()
