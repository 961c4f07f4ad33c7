"""A server loads only the Kubernetes modules that it uses."""

import json
import subprocess
import sys

import pytest

OPEN = """
import asyncio, sys
from backend_plugin.kube.cluster import KubernetesCluster
from backend_plugin.kube.options import KubernetesOptions

async def opened():
    await (await KubernetesCluster.open(KubernetesOptions(kubeconfig=sys.argv[1]))).close()

asyncio.run(opened())
print(*sys.modules)
"""


@pytest.mark.timeout(60)
def test_generated_models_are_not_imported(tmp_path):
    config = tmp_path / "config"
    settings = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    config.write_text(json.dumps(settings))
    command = [sys.executable, "-c", OPEN, str(config)]
    modules = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert "kubernetes.aio.config" in modules
    assert [name for name in modules if "kubernetes" in name and ".models." in name] == []
