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


def loaded(script, *arguments):
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


@pytest.mark.parametrize("module", ["kube", "kube.options", "kube.list_watch", "kube.api_resources"])
def test_package_imports_no_heavy_modules(module):
    modules = loaded(f"import sys, backend_plugin.{module}; print(*sys.modules)")
    assert {"aiohttp", "kubernetes", "yaml", "grpc"} & set(modules) == set()


@pytest.mark.timeout(60)
def test_generated_models_are_not_imported(tmp_path):
    config = tmp_path / "config"
    said = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    config.write_text(json.dumps(said))
    modules = loaded(OPEN, str(config))
    assert "kubernetes.aio.config" in modules
    assert [name for name in modules if "kubernetes" in name and ".models." in name] == []
