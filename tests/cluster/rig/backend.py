"""Our server, as a platform runs it: before this cluster, as a user with the rights that it asks for."""

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from backend_plugin.core.signing import SigningKeys
from rig.control_plane import BACKEND, HERE, ControlPlane, free_ports
from rig.images import REPOSITORY
from rig.process import Process

KFPYTORCH: Final = Path(sys.executable).with_name("kfpytorch")

_FILE: Final = REPOSITORY / "charts/kfpytorch-backend/files/rules.yaml"
_SAID: Final = yaml.safe_load(_FILE.read_text())
RULES: Final[Sequence[Mapping[str, Any]]] = (
    *_SAID["server"],
    *_SAID["gangs"],
    *_SAID["gangsEverywhere"],
    _SAID["groups"]["coscheduling"],
)
"""What it may do; nothing else: the chart's own rules, with gangs whose groups are its own."""

SIGNING: Final = SigningKeys(keys=(b"3f" * 32,))
"""The key of every server: several of one cluster need the same one."""


class Backend:
    """One server; a context that starts and ends it."""

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        *flags: str,
        server: str | None = None,
        known: Mapping[str, str] | None = None,
    ) -> None:
        """Something may stand between it and the API server at `server`; `known` is in its environment."""
        (self.port,) = free_ports(1)
        self._state = folder / "state"
        self.endpoint = f"{HERE}:{self.port}"
        command = [KFPYTORCH, "serve", "--cluster", "kubernetes", "--host", HERE, "--port", str(self.port)]
        command += ["--kubeconfig", plane.kubeconfig(BACKEND, server), "--state", self._state]
        command += ["--output-prefixes", "file:///", "--log-format", "text", *flags]
        keys = folder / "signing.keys"
        keys.write_bytes(SIGNING.keys[0])
        seen = {
            **environment(),
            # Namespaces of these tests are named after the tests, not after a project and domain.
            "KFPYTORCH_NAMESPACE_TEMPLATE": "*",
            "KFPYTORCH_SIGNING_KEYS_FILE": str(keys),
            **(known or {}),
        }
        self.process = Process(command, folder / "backend.log", environment=seen, directory=folder)

    def __enter__(self) -> "Backend":
        with contextlib.ExitStack() as undo:
            undo.callback(self.process.stop)
            self.start()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def start(self) -> None:
        """Start it, on the same port as before; returns when it is ready."""
        self._state.mkdir(exist_ok=True)
        self.process.start()
        self.process.wait_until(self._is_ready)

    def _is_ready(self) -> bool:
        with grpc.insecure_channel(self.endpoint) as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=1)
            except grpc.RpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def environment() -> Mapping[str, str]:
    """This process' own without what a server would read: tests have variables of such names, too."""
    return {name: said for name, said in os.environ.items() if not name.startswith("KFPYTORCH_")}


def permit(plane: ControlPlane, rules: Sequence[Mapping[str, Any]] = RULES) -> None:
    """Give the server's user these rights, in all namespaces."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": BACKEND},
    }
    plane.admin.apply({**role, "rules": [dict(rule) for rule in rules]})
    plane.admin.apply(
        {
            **role,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": BACKEND},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": BACKEND}],
        }
    )
