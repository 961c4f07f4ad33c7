"""Parts that many processes load import no heavy modules."""

import subprocess
import sys
from pathlib import Path

import pytest

import backend_plugin

ROOT = Path(backend_plugin.__file__).parent.parent
OF_KUBE = ("api_resources", "list_watch", "options")


def list_imports(code: str, *options: str) -> list[str]:
    command = [sys.executable, *options, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout.split()


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("backend_plugin.embedded.cluster", "fsspec flytekit grpc kubernetes rich torch yaml"),
        ("backend_plugin.embedded.kubelet", "flytekit grpc kubernetes psutil torch"),
        *((f"backend_plugin.kube.{name}", "aiohttp kubernetes yaml grpc") for name in OF_KUBE),
    ],
)
def test_package_imports_no_heavy_modules(module: str, heavy: str) -> None:
    assert set(heavy.split()).isdisjoint(list_imports(f"import {module}"))


def test_core_imports_only_light_packages() -> None:
    generated = (
        "from flyteidl.core import tasks_pb2; from flyteidl.plugins import pytorch_pb2\n"
        "from flyteidl.plugins.kubeflow import pytorch_pb2"
    )
    loaded = {*list_imports(f"{generated}\nimport backend_plugin.core.pipeline")} - {*list_imports(generated)}
    allowed = {"backend_plugin", "kfpytorch_common", "kfpytorch_idl", "google", "msgspec", "packaging"}
    packages = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert packages <= {*allowed, "typing_extensions"}


OPEN = """
import asyncio
from backend_plugin.kube.cluster import KubernetesCluster
from backend_plugin.kube.options import KubernetesOptions

async def opened():
    await (await KubernetesCluster.open(KubernetesOptions(kubeconfig={!r}))).close()

asyncio.run(opened())
"""
# JSON is YAML too.
KUBECONFIG = """{
"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
"clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
"users": [{"name": "u", "user": {"token": "t"}}]
}"""


@pytest.mark.timeout(60)
def test_opened_cluster_has_not_imported_the_generated_models(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    modules = list_imports(OPEN.format(str(tmp_path / "config")))
    assert "kubernetes.aio.config" in modules
    assert [name for name in modules if "kubernetes" in name and ".models." in name] == []


def test_shim_imports_only_light_standard_library_modules() -> None:
    code = f"sys.path.append({str(ROOT)!r}); import backend_plugin.embedded.shim.main"
    modules = {name.partition(".")[0] for name in list_imports(code, "-I", "-S")}
    assert modules - sys.stdlib_module_names - {"__main__"} == {"backend_plugin"}
    assert not {"asyncio", "dataclasses", "pathlib", "shutil", "subprocess", "threading", "typing"} & modules
