"""The gang capabilities that a real API server shows to an admin and to our server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig.api import path_of
from rig.control_plane import BACKEND, ControlPlane
from rig.process import wait_until
from rig.tools import module_directory

from backend_plugin.core.scheduling.capabilities import Capabilities
from backend_plugin.kube.cluster import KubernetesCluster
from backend_plugin.kube.options import KubernetesOptions

NAMESPACE = "found"
GROUP = "scheduling.x-k8s.io"
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "training-operator", "namespace": NAMESPACE},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "o", "image": "o", "args": ["--gang-scheduler-name=theirs"]}]},
        },
    },
}
GIVEN = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "given", "namespace": NAMESPACE},
    "spec": {"limits": [{"type": "Container", "default": {"memory": "1Gi"}, "max": {"cpu": "4"}}]},
}


@pytest.fixture(scope="module")
def with_kinds(bare: ControlPlane) -> Iterator[ControlPlane]:
    crds = module_directory("kubernetes", "sigs.k8s.io/scheduler-plugins") / "config/crd/bases"
    bare.crds(sorted(crds.glob(f"{GROUP}_*.yaml")))
    bare.namespace(NAMESPACE)
    made = [f"{path_of(bare.admin.apply(each))}/{each['metadata']['name']}" for each in (DEPLOYMENT, GIVEN)]
    yield bare
    for path in made:
        bare.admin.delete(path)


def collect_capabilities(plane: ControlPlane, user: str | None = None) -> Capabilities:
    async def collect() -> Capabilities:
        config: Any = plane.kubeconfig(user) if user else plane.kubeconfig()
        cluster = await KubernetesCluster.open(KubernetesOptions(kubeconfig=str(Path(config))))
        try:
            return await cluster.looking.fetch_capabilities(NAMESPACE)
        finally:
            await cluster.close()

    return asyncio.run(collect())


def test_all_capabilities_of_the_cluster_are_collected(with_kinds: ControlPlane) -> None:
    wait_until(lambda: collect_capabilities(with_kinds).has_api(GROUP), 60, lambda: "the group is not served")
    found = collect_capabilities(with_kinds)
    assert found.kubernetes is not None
    assert found.kubernetes.startswith("1.")
    assert found.apis is not None
    assert (found.apis[GROUP], found.apis["kubeflow.org"]) == (("v1alpha1",), ("v1",))
    assert found.operator_scheduler == "theirs"
    assert (found.admission_scheduler, found.keeps_scheduling_group) == ("default-scheduler", False)
    # The API server fills in values that a LimitRange omits.
    assert found.container_defaults == {"cpu": "4", "memory": "1Gi"}
    assert found.unknown == {}
    assert with_kinds.admin.items(f"/api/v1/namespaces/{NAMESPACE}/pods") == []


def test_rights_of_the_chart_suffice_to_collect_capabilities(with_kinds: ControlPlane) -> None:
    found = collect_capabilities(with_kinds, BACKEND)
    assert found.unknown == {}
    assert found == collect_capabilities(with_kinds)
