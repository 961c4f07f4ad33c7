"""A shim and a kubelet import few modules, because there may be hundreds of shims."""

import subprocess
import sys
from pathlib import Path

import pytest

import backend_plugin

ROOT = Path(backend_plugin.__file__).parent.parent
SAY = "print(*sys.modules)"
SHIM = f"import sys; sys.path.append({str(ROOT)!r}); import backend_plugin.embedded.shim.main; {SAY}"
KUBELET = f"import sys, backend_plugin.embedded.kubelet; {SAY}"


def loaded(*arguments: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    return {name.partition(".")[0] for name in out.stdout.split()}


def test_shim_imports_only_light_standard_library_modules():
    modules = loaded("-I", "-S", "-c", SHIM)
    assert modules - sys.stdlib_module_names - {"__main__"} == {"backend_plugin"}
    assert not {"asyncio", "dataclasses", "pathlib", "shutil", "subprocess", "threading", "typing"} & modules


@pytest.mark.parametrize("heavy", ["flytekit", "grpc", "kubernetes", "psutil", "torch"])
def test_kubelet_imports_no_heavy_modules(heavy):
    assert heavy not in loaded("-c", KUBELET)
