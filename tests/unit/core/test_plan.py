"""Tests for `plan`: its imports and a reproducible result."""

import subprocess
import sys

from builders import a_run, a_template

from backend_plugin.core import settings
from backend_plugin.core.pipeline import plan

LOADED = """
import sys
from flyteidl.core import tasks_pb2
from flyteidl.plugins import pytorch_pb2
from flyteidl.plugins.kubeflow import pytorch_pb2
before = set(sys.modules)
import backend_plugin.core.pipeline
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""
TWO = {"workerReplicas": {"replicas": 2}}


def test_core_imports_only_light_packages():
    loaded = subprocess.run([sys.executable, "-c", LOADED], check=True, stdout=subprocess.PIPE, text=True)
    allowed = {
        "backend_plugin",
        "kfpytorch_common",
        "kfpytorch_idl",
        "google",
        "msgspec",
        "packaging",
        "typing_extensions",
    }
    assert set(loaded.stdout.split()) - sys.stdlib_module_names <= allowed


def test_same_task_has_the_same_plan_and_is_not_changed():
    template = a_template(TWO)
    one, other = (plan(template, a_run(), settings.read({})) for _ in range(2))
    assert one == other
    assert [manifest["kind"] for manifest in one.manifests] == ["PyTorchJob"]
    assert template == a_template(TWO)
