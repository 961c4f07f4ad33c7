"""Our server as a platform runs it: connected to a test cluster, as a user with the rights of the chart."""

import contextlib
import os
import sys
from pathlib import Path

import grpc
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from backend_plugin.core.signing import SigningKeys
from rig.control_plane import BACKEND, HERE, free_ports
from rig.images import REPOSITORY
from rig.process import Process

KFPYTORCH = Path(sys.executable).with_name("kfpytorch")

CHART_RULES = yaml.safe_load((REPOSITORY / "charts/kfpytorch-backend/files/rules.yaml").read_text())
_PARTS = ("server", "gangs", "dryRuns", "operators", "gangsEverywhere", "clusterRuntimes")
RULES = (*(rule for part in _PARTS for rule in CHART_RULES[part]), CHART_RULES["groups"]["coscheduling"])
"""The RBAC rules of the server: those of the chart with gangs, and with the PodGroups of coscheduling."""

SIGNING = SigningKeys(keys=(b"3f" * 32,))
"""The signing key of every server; several servers of one cluster need the same one."""


class Backend:
    """A context manager that starts and stops one server."""

    def __init__(self, plane, folder, *, server=None, known=None, settings=None):
        """Configure a server of a cluster.

        Args:
            server: The URL of a proxy to use in place of the API server.
            known: Further environment variables.
            settings: The section `plugins.k8s` of its settings.
        """
        (self.port,) = free_ports(1)
        self.state = folder / "state"
        self.endpoint = f"{HERE}:{self.port}"
        command = [KFPYTORCH, "serve", "--cluster", "kubernetes", "--host", HERE, "--port", str(self.port)]
        command += ["--kubeconfig", plane.kubeconfig(BACKEND, server), "--state-dir", self.state]
        command += ["--output-prefixes", "file:///", "--log-format", "text"]
        if settings:
            file = folder / "settings.yaml"
            file.write_text(yaml.safe_dump({"plugins": {"k8s": dict(settings)}}))
            command += ["--settings", file]
        keys = folder / "signing.keys"
        keys.write_bytes(SIGNING.keys[0])
        variables = {
            **environment(),
            # The namespaces of these tests have the names of tests, not of a project and domain.
            "KFPYTORCH_NAMESPACE_TEMPLATE": "*",
            "KFPYTORCH_SIGNING_KEYS_FILE": str(keys),
            **(known or {}),
        }
        self.process = Process(command, folder / "backend.log", environment=variables, directory=folder)

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.process.stop)
            self.start()
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.process.stop()

    def start(self):
        """Start the server on its port, and return when it is ready."""
        self.state.mkdir(exist_ok=True)
        self.process.start()
        self.process.wait_until(self._is_ready)

    def _is_ready(self):
        with grpc.insecure_channel(self.endpoint) as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=1)
            except grpc.RpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def environment():
    """Return the environment of this process without the variables that a server would read."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KFPYTORCH_")}


def permit(plane, rules=RULES):
    plane.admin.grant(BACKEND, rules)
