"""Parts that many processes load import no heavy modules."""

import subprocess
import sys
from pathlib import Path

import pytest

import backend_plugin

ROOT = Path(backend_plugin.__file__).parent.parent


def list_imports(code: str, *options: str) -> set[str]:
    """Return the packages that an interpreter has loaded after `code`."""
    command = [sys.executable, *options, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        (
            "import backend_plugin.embedded.cluster",
            {"fsspec", "flytekit", "grpc", "kubernetes", "rich", "torch", "yaml"},
        ),
        ("import backend_plugin.embedded.kubelet", {"flytekit", "grpc", "kubernetes", "psutil", "torch"}),
        (
            "from backend_plugin.kube import api_resources, list_watch, options",
            {"aiohttp", "kubernetes", "yaml", "grpc"},
        ),
    ],
)
def test_package_imports_no_heavy_modules(code: str, heavy: set[str]) -> None:
    assert heavy & list_imports(code) == set()


def test_shim_imports_only_light_standard_library_modules() -> None:
    modules = list_imports(
        f"sys.path.append({str(ROOT)!r}); import backend_plugin.embedded.shim.main", "-I", "-S"
    )
    assert modules - sys.stdlib_module_names - {"__main__"} == {"backend_plugin"}
    assert not {"asyncio", "dataclasses", "pathlib", "shutil", "subprocess", "threading", "typing"} & modules
