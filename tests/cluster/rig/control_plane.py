"""etcd, kube-apiserver and kube-controller-manager on free ports of loopback."""

import contextlib
import json
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import yaml

from rig.api import Api
from rig.certificates import Authority
from rig.process import Process, until
from rig.tools import tool

HERE: Final = "127.0.0.1"
_SERVICES: Final = "10.0.0.0/24"
ADMIN: Final = "admin"


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment; all different."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HERE, 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What differs from one control plane to the next."""

    controllers: bool = True
    """Whether owners' objects go with them, nodes become ready, namespaces end."""
    api_server: Sequence[str] = ()
    """Further flags."""
    controller_manager: Sequence[str] = ()
    """Further flags."""


class ControlPlane:
    """A cluster without nodes; a context that starts and ends it."""

    def __init__(self, folder: Path, options: Options | None = None) -> None:
        self.folder = folder
        self.options = options or Options()
        self.authority = Authority(folder / "certificates", "training-operator")
        self.etcd_port, self.etcd_peer_port, self.port = free_ports(3)
        self.server = f"https://{HERE}:{self.port}"
        self._tokens: dict[str, tuple[str, str]] = {}
        """By user: the token, and the groups."""
        self._stack = contextlib.ExitStack()
        self._user(ADMIN, "system:masters")
        self._user("backend", "")
        self.etcd = self._process("etcd", self._etcd_flags())
        self.api_server = self._process("kube-apiserver", self._api_server_flags())
        self.controller_manager = self._process("kube-controller-manager", self._controller_manager_flags())
        self.admin = Api(self.server, self.authority.certificate, self.token(ADMIN))

    def __enter__(self) -> "ControlPlane":
        with contextlib.ExitStack() as stack:
            stack.callback(self.admin.close)
            self._write_tokens()
            stack.enter_context(self.etcd)
            stack.enter_context(self.api_server)
            self.wait()
            if self.options.controllers:
                stack.enter_context(self.controller_manager)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def wait(self) -> None:
        """Until the API server is ready."""
        self.api_server.wait_until(self.admin.is_ready)

    def enter(self, process: Process) -> Process:
        """Start a program that ends with the cluster, before what it was started after."""
        return self._stack.enter_context(process)

    def process(
        self, program: str, flags: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Process:
        """A program of this cluster, not yet started."""
        return self._process(program, flags, environment)

    def token(self, user: str) -> str:
        """What one of its users says to be known."""
        return self._tokens[user][0]

    def api(self, user: str) -> Api:
        """The API server as this user."""
        return Api(self.server, self.authority.certificate, self.token(user))

    def kubeconfig(self, user: str = ADMIN, server: str | None = None) -> Path:
        """A file by which a program becomes this user; of another server if something stands between."""
        path = self.folder / f"{user}-{secrets.token_hex(4)}.kubeconfig"
        cluster = {"server": server or self.server, "certificate-authority": str(self.authority.certificate)}
        document: Mapping[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rig", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": user}}],
            "current-context": "rig",
        }
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)
        return path

    def namespace(self, name: str) -> None:
        """Make a namespace, with the account that pods of it run as."""
        self.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        metadata = {"name": "default", "namespace": name}
        self.admin.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})

    def crds(self, files: Sequence[Path]) -> None:
        """Make kinds, and wait until they can be used."""
        manifests = [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]
        for manifest in manifests:
            self.admin.apply(manifest)
        names = {manifest["metadata"]["name"] for manifest in manifests}
        until(lambda: all(map(self._is_established, names)), 30, lambda: f"not established: {sorted(names)}")

    def _is_established(self, name: str) -> bool:
        found = self.admin.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        conditions = (found or {}).get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    def _user(self, name: str, groups: str) -> None:
        self._tokens[name] = (secrets.token_urlsafe(24), groups)

    def _write_tokens(self) -> None:
        lines = [f'{token},{user},{user},"{groups}"' for user, (token, groups) in self._tokens.items()]
        path = self.folder / "tokens.csv"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)

    def _process(
        self, program: str, flags: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Process:
        log = self.folder / "logs" / f"{program}.log"
        return Process([tool(program), *flags], log, environment=environment, directory=self.folder)

    def _etcd_flags(self) -> Sequence[str]:
        client, peer = f"http://{HERE}:{self.etcd_port}", f"http://{HERE}:{self.etcd_peer_port}"
        return (
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )

    def _api_server_flags(self) -> Sequence[str]:
        serving = self.authority.server("kube-apiserver")
        accounts = self.authority.server("service-accounts")
        return (
            f"--etcd-servers=http://{HERE}:{self.etcd_port}",
            f"--bind-address={HERE}",
            f"--advertise-address={HERE}",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.authority.certificate}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={accounts.key}",
            f"--service-account-signing-key-file={accounts.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={_SERVICES}",
            "--allow-privileged",
            "--disable-admission-plugins=ServiceAccount",
            *self.options.api_server,
        )

    def _controller_manager_flags(self) -> Sequence[str]:
        return (
            f"--kubeconfig={self.kubeconfig()}",
            f"--bind-address={HERE}",
            "--secure-port=0",
            "--leader-elect=false",
            f"--service-account-private-key-file={self.folder / 'certificates' / 'service-accounts.key'}",
            f"--root-ca-file={self.authority.certificate}",
            *self.options.controller_manager,
        )


def dumped(document: Any, path: Path) -> Path:
    """A document as a YAML file; JSON is YAML."""
    path.write_text(json.dumps(document))
    return path
