"""etcd, kube-apiserver and kube-controller-manager, on free ports."""

import base64
import contextlib
import json
import random
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from rig.api import Api, build_manifest, manifests
from rig.certificates import ClusterAuthority
from rig.process import LOOPBACK, Place, Process, wait_until
from rig.tools import tool

HERE = "127.0.0.1"
_PORTS = (16_384, 32_768)
_CHANCE = random.SystemRandom()  # Independent of the global generator, which a test may have seeded.
ADMIN = "admin"
PROPELLER = "propeller"
BACKEND = "backend"
_GROUPS = {ADMIN: "system:masters", PROPELLER: "system:masters", BACKEND: ""}
# Logs the metadata of requests, without their bodies.
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [PROPELLER, BACKEND]}, {"level": "None"}],
}


def free_ports(count):
    """Return `count` different ports that are free at this moment.

    The ports lie below the range of ephemeral ports, so that the kernel does not assign one to a connection
    before its program starts. They are random, so that two test runs on one machine rarely collide.
    """
    found = {}
    while len(found) < count:
        port = _CHANCE.randrange(*_PORTS)
        with socket.socket() as tried, contextlib.suppress(OSError):
            # Fails if a program uses the port at any address: some programs listen at all of them.
            tried.bind(("", port))
            found[port] = None
    return list(found)


MUTATING = (
    "--feature-gates=MutatingAdmissionPolicy=true",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
)
"""Flags of the API server for tests in which policies that change objects represent mutating webhooks."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Properties that differ between control planes."""

    controllers: bool = True
    """Run kube-controller-manager: garbage collection, namespace deletion and node lifecycle."""
    api_server: Sequence[str] = ()  # Further flags.
    controller_manager: Sequence[str] = ()  # Further flags.
    without_nodes: Sequence[str] = (
        f"--advertise-address={HERE}",
        "--endpoint-reconciler-type=none",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
    )
    """Flags of the API server for a cluster in which no pod connects to it; real nodes need others."""
    place: Place = LOOPBACK  # The place in which the programs run.
    names: Sequence[str] = ()  # Further addresses and names in the certificate of the API server.


class ControlPlane:
    """A cluster without nodes; a context manager that starts and stops it."""

    def __init__(self, folder, options=None):
        self.folder = folder
        self.options = options or Options()
        self.authority = ClusterAuthority(folder / "certificates", "training-operator")
        self.etcd_port, self.etcd_peer_port, self.port = free_ports(3)
        self.place = self.options.place
        self.server = f"https://{self.place.address}:{self.port}"
        self._tokens = {user: secrets.token_urlsafe(24) for user in _GROUPS}
        self._stack = contextlib.ExitStack()
        self.etcd = self.process("etcd", self._etcd_flags())
        self.api_server = self.process("kube-apiserver", self._api_server_flags())
        self.controller_manager = self.process("kube-controller-manager", self._controller_manager_flags())
        self.admin = Api(self.server, self.authority.certificate, self.token(ADMIN))

    def __enter__(self):
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

    def __exit__(self, *_):
        self._stack.close()

    @property
    def audit(self):
        return self.folder / "audit.jsonl"

    def wait(self):
        self.api_server.wait_until(self.admin.is_ready)

    def enter(self, process):
        """Start a program that is stopped with the cluster, before the programs that were started earlier."""
        return self._stack.enter_context(process)

    def process(self, program, flags, environment=None, place=None):
        """Return a program of this cluster, not started, by default in the place of the cluster."""
        command, log = [tool(program), *flags], self.folder / "logs" / f"{program}.log"
        where = place or self.place
        return Process(command, log, environment=environment, directory=self.folder, place=where)

    def start_manager(self, program, folder, webhook, configuration):
        """Start a controller manager with a webhook at this port, and return when it is ready."""
        (health,) = free_ports(1)
        whole = {
            "kind": "Configuration",
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"{self.place.listen}:{health}"},
            "leaderElection": {"leaderElect": False},
            **configuration,
            "webhook": {"host": HERE, "port": webhook, **configuration.get("webhook", {})},
        }
        config = dumped(whole, folder / "config.json")
        known = {"KUBECONFIG": str(self.kubeconfig()), "HOME": str(self.folder), "TMPDIR": str(folder)}
        process = self.enter(self.process(program, (f"--config={config}",), known))
        process.wait_until(lambda: self.place.is_ready(health))
        return process

    def token(self, user):
        return self._tokens[user]

    def kubeconfig(self, user=ADMIN, server=None):
        """Write a kubeconfig for a user; `server` replaces the URL of the API server, as for a proxy."""
        return self._kubeconfig(user, {"token": self.token(user)}, server)

    def certified(self, user, group="", server=None):
        """Write a kubeconfig with a client certificate, as nodes and Kubernetes components use it."""
        pair = self.authority.client(f"{user.replace(':', '-')}-{secrets.token_hex(4)}", user, group)
        known = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        return self._kubeconfig(user, known, server)

    def _kubeconfig(self, user, known, server):
        path = self.folder / f"{user.replace(':', '-')}-{secrets.token_hex(4)}.kubeconfig"
        cluster = {"server": server or self.server, "certificate-authority": str(self.authority.certificate)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rig", "cluster": cluster}],
            "users": [{"name": user, "user": dict(known)}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": user}}],
            "current-context": "rig",
        }
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)
        return path

    def namespace(self, name):
        """Create a namespace and its default service account."""
        self.admin.apply(build_manifest("v1", "Namespace", name))
        self.admin.apply(build_manifest("v1", "ServiceAccount", "default", name))

    def keep_certificates(self, namespace, name, serving, authority):
        """Create the Secret from which an operator reads its certificate and its authority."""
        files = {
            "ca.crt": authority.certificate,
            "ca.key": authority.key,
            "tls.crt": serving.certificate,
            "tls.key": serving.key,
        }
        data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
        self.admin.apply(build_manifest("v1", "Secret", name, namespace, data=data))

    def crds(self, files):
        for file in files:
            for manifest in manifests(file):
                self.add_kind(manifest)

    def add_kind(self, manifest):
        """Create a CRD and wait until the API server serves its kind and lists it in discovery.

        Both are true only shortly after the CRD is established. An operator that does not find its kind in
        discovery ends.
        """
        spec = manifest["spec"]
        version = next(each["name"] for each in spec["versions"] if each["served"])
        group, plural = f"/apis/{spec['group']}/{version}", spec["names"]["plural"]
        self.admin.apply(manifest)

        def is_served():
            listed = self.admin.request("GET", group)
            is_listed = listed.is_success and any(one["name"] == plural for one in listed.json()["resources"])
            return is_listed and bool(self.admin.request("GET", f"{group}/{plural}").is_success)

        wait_until(is_served, 60, lambda: f"{group}/{plural} is not served")

    def _write_tokens(self):
        lines = [f'{token},{user},{user},"{_GROUPS[user]}"' for user, token in self._tokens.items()]
        path = self.folder / "tokens.csv"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)

    def _etcd_flags(self):
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

    def _api_server_flags(self):
        known = (HERE, "localhost", *self.options.names)
        serving = self.authority.server("kube-apiserver", known)
        accounts = self.authority.server("service-accounts")
        # The API server reads container logs from kubelets with this certificate.
        kubelets = self.authority.client("kube-apiserver-kubelet-client", "kube-apiserver", "system:masters")
        return (
            f"--etcd-servers=http://{HERE}:{self.etcd_port}",
            f"--bind-address={self.place.listen}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.authority.certificate}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-key-file={accounts.key}",
            f"--service-account-signing-key-file={accounts.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged",
            f"--kubelet-client-certificate={kubelets.certificate}",
            f"--kubelet-client-key={kubelets.key}",
            f"--kubelet-certificate-authority={self.authority.certificate}",
            f"--audit-policy-file={dumped(_AUDIT, self.folder / 'audit-policy.yaml')}",
            f"--audit-log-path={self.audit}",
            *self.options.without_nodes,
            *self.options.api_server,
        )

    def _controller_manager_flags(self):
        return (
            f"--kubeconfig={self.kubeconfig()}",
            f"--bind-address={HERE}",
            "--secure-port=0",
            "--leader-elect=false",
            f"--service-account-private-key-file={self.folder / 'certificates' / 'service-accounts.key'}",
            f"--root-ca-file={self.authority.certificate}",
            # Without it, a quota that is older than its CRD is first counted after five minutes.
            "--resource-quota-sync-period=10s",
            *self.options.controller_manager,
        )


def dumped(document, path):
    """Write a document to a YAML file, as JSON, and return the path."""
    path.write_text(json.dumps(document))
    return path
