"""Test for the imports of the core."""

import subprocess
import sys

LOADED = """
import sys
from flyteidl.core import tasks_pb2
from flyteidl.plugins import pytorch_pb2
from flyteidl.plugins.kubeflow import pytorch_pb2
before = set(sys.modules)
import backend_plugin.core.pipeline
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""


def test_core_imports_only_light_packages():
    loaded = subprocess.run([sys.executable, "-c", LOADED], check=True, stdout=subprocess.PIPE, text=True)
    allowed = {"backend_plugin", "kfpytorch_common", "kfpytorch_idl"}
    allowed |= {"google", "msgspec", "packaging", "typing_extensions"}
    assert set(loaded.stdout.split()) - sys.stdlib_module_names <= allowed
