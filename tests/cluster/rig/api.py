"""What a test asks of the real API server: a small client that is nobody's but the tests'."""

import json
import re
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

Manifest = dict[str, Any]
_CLUSTER_WIDE: Final = {
    "ClusterQueue",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PriorityClass",
    "ResourceFlavor",
    "RuntimeClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "WorkloadPriorityClass",
}
_MANAGER: Final = "kfpytorch-tests"


class Api:
    """An API server, as one user.

    Args:
        server: Its URL.
        authority: Whom to trust.
        token: Who asks.
    """

    def __init__(self, server: str, authority: Path, token: str) -> None:
        self.server = server
        self.authority = authority
        self.token = token
        self._trusted = ssl.create_default_context(cafile=str(authority))
        self._of_thread = threading.local()
        self._clients: list[httpx.Client] = []

    def close(self) -> None:
        """Let go of its connections."""
        for client in self._clients:
            client.close()

    @property
    def _client(self) -> httpx.Client:
        """Each thread has its own: from a pool that they share, one may close what another reads."""
        client: httpx.Client | None = getattr(self._of_thread, "client", None)
        if client is None or client.is_closed:
            client = httpx.Client(
                base_url=self.server,
                verify=self._trusted,
                headers={"Authorization": f"Bearer {self.token}"},
                timeout=30,
            )
            self._of_thread.client = client
            self._clients.append(client)
        return client

    def is_ready(self) -> bool:
        """Whether it says so itself."""
        try:
            return self._client.get("/readyz").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def ask(self, method: str, path: str, body: Manifest | None = None, **said: Any) -> httpx.Response:
        """Any request; its answer, whatever it is."""
        return self._client.request(method, path, json=body, **said)

    def create(self, manifest: Manifest) -> Manifest:
        """Make an object; raises if it is refused."""
        return self._told(self.ask("POST", path_of(manifest), manifest))

    def apply(self, manifest: Manifest) -> Manifest:
        """Make an object or bring it up to this, by server-side apply."""
        name = manifest["metadata"]["name"]
        return self._told(
            self._client.patch(
                f"{path_of(manifest)}/{name}",
                params={"fieldManager": _MANAGER, "force": "true"},
                headers={"Content-Type": "application/apply-patch+yaml"},
                content=json.dumps(manifest),
            )
        )

    def apply_all(self, files: Sequence[Path]) -> None:
        """Every object of these YAML files."""
        for file in files:
            for manifest in manifests(file):
                self.apply(manifest)

    def patch(self, path: str, patch: Manifest) -> Manifest:
        """Merge into an object (RFC 7386); the path may end in ``/status``."""
        return self._told(
            self._client.patch(
                path, content=json.dumps(patch), headers={"Content-Type": "application/merge-patch+json"}
            )
        )

    def get(self, path: str) -> Manifest | None:
        """An object; None if there is none."""
        answer = self.ask("GET", path)
        return None if answer.status_code == httpx.codes.NOT_FOUND else self._told(answer)

    def items(self, path: str, **selectors: str) -> Sequence[Manifest]:
        """The objects of a list; ``labelSelector="a=b"``."""
        listed: list[Manifest] = self._told(self.ask("GET", path, params=selectors))["items"]
        return listed

    def delete(self, path: str, propagation: str = "Background") -> None:
        """Delete an object, if it is there."""
        answer = self.ask("DELETE", path, params={"propagationPolicy": propagation})
        if answer.status_code != httpx.codes.NOT_FOUND:
            self._told(answer)

    def watch(self, path: str, **parameters: str) -> Iterator[Manifest]:
        """Changes as they come, until the server ends the watch."""
        asked = {"watch": "true", **parameters}
        with self._client.stream("GET", path, params=asked, timeout=None) as answer:
            for line in answer.iter_lines():
                yield json.loads(line)

    @staticmethod
    def _told(answer: httpx.Response) -> Manifest:
        assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.text}"
        told: Manifest = answer.json()
        return told


def manifests(file: Path) -> Sequence[Manifest]:
    """The objects of a YAML file."""
    # There are kinds of forty thousand lines, for which the other loader takes half a minute.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    read = yaml.load_all(file.read_text(), Loader=loader)
    return [manifest for manifest in read if manifest]


def path_of(manifest: Mapping[str, Any]) -> str:
    """Where objects like this one are listed and made."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = re.sub("ys$", "ies", kind.lower() + ("es" if kind.endswith("s") else "s"))
    if kind in _CLUSTER_WIDE:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{manifest['metadata'].get('namespace', 'default')}/{plural}"


def jobs(namespace: str, name: str = "") -> str:
    """The path of PyTorchJobs, or of one."""
    return f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs" + (f"/{name}" if name else "")


def pods(namespace: str, name: str = "") -> str:
    """The path of pods, or of one."""
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")
