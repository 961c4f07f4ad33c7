"""An embedded cluster does not import modules that it does not need."""

import subprocess
import sys

HEAVY = {"fsspec", "flytekit", "grpc", "kubernetes", "rich", "torch", "yaml"}


def test_cluster_imports_no_heavy_packages():
    show = "import sys, backend_plugin.embedded.cluster; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", show], check=True, stdout=subprocess.PIPE, text=True)
    assert HEAVY & set(loaded.stdout.split()) == set()
