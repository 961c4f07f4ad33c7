"""Tests for the type checks and the normalization of pod parts."""

import subprocess
import sys

import pytest

from backend_plugin.core import schema_check

WRITTEN = [
    ("Container", {"name": "c", "tty": False, "env": [], "resources": {}}, {"name": "c", "resources": {}}),
    ("Container", {"name": "c", "unknown": 1}, {"name": "c"}),
    ("Container", {"ports": [{"containerPort": 0, "hostPort": 0}]}, {"ports": [{"containerPort": 0}]}),
    ("EphemeralContainer", {"name": "c", "stdin": True}, {"name": "c", "stdin": True}),
    # A pointer field distinguishes zero from unset.
    ("SecurityContext", {"runAsUser": 0, "privileged": False}, {"runAsUser": 0, "privileged": False}),
    ("PodSpec", {"hostNetwork": False, "priority": 0, "affinity": {}}, {"priority": 0, "affinity": {}}),
    ("HTTPGetAction", {"port": "http"}, {"port": "http"}),
    ("HTTPGetAction", {"port": 80, "path": ""}, {"port": 80}),
    ("ResourceFieldSelector", {"resource": "limits.cpu"}, {"resource": "limits.cpu", "divisor": "0"}),
    ("ResourceFieldSelector", {"resource": "r", "divisor": "1024Mi"}, {"resource": "r", "divisor": "1Gi"}),
    ("EmptyDirVolumeSource", {"sizeLimit": 0.5}, {"sizeLimit": "500m"}),
    ("EmptyDirVolumeSource", {}, {}),
    ("ResourceRequirements", {"limits": {"cpu": 1, "a.b/c": " 2 "}}, {"limits": {"cpu": "1", "a.b/c": "2"}}),
    ("[LocalObjectReference]", [{"name": "a"}, {}], [{"name": "a"}, {}]),
    ("{string}", {"a": ""}, {"a": ""}),
]


@pytest.mark.parametrize(("kind", "value", "written"), WRITTEN)
def test_value_is_normalized_like_kubernetes_does(kind, value, written):
    assert schema_check.convert_value(value, kind, "x") == (written, [])


WRONG = [
    ("Container", [], ["x: []"]),
    ("Container", {"args": "a"}, ['x.args: "a"']),
    ("Container", {"name": 3}, ["x.name: 3"]),
    ("Container", {"tty": 1}, ["x.tty: 1"]),
    ("ContainerPort", {"hostPort": 2**31}, [f"x.hostPort: {2**31}"]),
    ("ContainerPort", {"containerPort": "80", "hostPort": ""}, ['x.hostPort: ""', 'x.containerPort: "80"']),
    ("SecurityContext", {"runAsUser": 1.5}, ["x.runAsUser: 1.5"]),
    ("TCPSocketAction", {"port": True}, ["x.port: true"]),
    ("{quantity}", {"b": "-1", "a": "1x"}, ['x.a: "1x"', 'x.b: "-1"']),
    ("[string]", ["a", None], ["x[1]: null"]),
]


@pytest.mark.parametrize(("kind", "value", "problems"), WRONG)
def test_value_of_the_wrong_type_is_reported(kind, value, problems):
    found, wrong = schema_check.convert_value(value, kind, "x")
    assert found is None
    assert [f"{each.field}: {each.value}" for each in wrong] == problems


# A short switch interval makes the threads change within the first use of a type.
PROGRAM = """
import sys, threading
from backend_plugin.core import schema_check

def read():
    barrier.wait()
    pod = {"containers": [{"name": "a", "image": "b"}], "affinity": {}}
    schema_check.convert_value(pod, "PodSpec", "spec")

sys.setswitchinterval(1e-6)
schema_check.prepare_types()
barrier = threading.Barrier(2)
threads = [threading.Thread(target=read) for _ in range(2)]
[each.start() for each in threads]
[each.join() for each in threads]
"""


def test_types_are_complete_before_threads_use_them():
    # Without the preparation about half of the processes end with a segmentation fault.
    for _ in range(6):
        assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0
    schema_check.prepare_types()  # Again, without effect.
    assert schema_check.check_value({"containers": []}, "PodSpec", "spec") == []
