"""A small client of the real API server, used only by tests."""

import contextlib
import json
import re
import ssl
import threading
from functools import partial
from typing import Any

import httpx
import yaml

from rig.process import wait_for

Manifest = dict[str, Any]
_OF_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")


class Api:
    """An API server, used as the user with this bearer token."""

    def __init__(self, server, authority, token):
        self.server = server
        self.token = token
        self._trusted = ssl.create_default_context(cafile=str(authority))
        self._of_thread = threading.local()
        self._clients = []

    def close(self):
        for client in self._clients:
            client.close()

    @property
    def _client(self):
        """The client of this thread. In a shared pool, a thread could close a connection that is in use."""
        client = getattr(self._of_thread, "client", None)
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

    def is_ready(self):
        try:
            return self._client.get("/readyz").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def request(self, method, path, body=None, **options):
        return self._client.request(method, path, json=body, **options)

    def create(self, manifest):
        """Create an object and return it. Fails the test if the API server rejects it."""
        return self._decode(self.request("POST", path_of(manifest), manifest))

    def apply(self, manifest):
        name = manifest["metadata"]["name"]
        return self._decode(
            self._client.patch(
                f"{path_of(manifest)}/{name}",
                params={"fieldManager": "kfpytorch-tests", "force": "true"},
                headers={"Content-Type": "application/apply-patch+yaml"},
                content=json.dumps(manifest),
            )
        )

    def apply_with_status(self, manifest):
        """Create or update an object, and write its status, if it has one."""
        self.apply({key: value for key, value in manifest.items() if key != "status"})
        if "status" in manifest:
            path = f"{path_of(manifest)}/{manifest['metadata']['name']}/status"
            self.patch(path, {"status": manifest["status"]})

    def try_create(self, manifest, **params):
        """Create an object in a dry run, and return the response, with any status."""
        return self.request("POST", path_of(manifest), manifest, params={"dryRun": "All", **params})

    def try_patch(self, path, patch, **params):
        """Apply a merge patch (RFC 7386) to an object, and return the response, with any status."""
        headers = {"Content-Type": "application/merge-patch+json"}
        return self.request("PATCH", path, patch, params=params, headers=headers)

    def patch(self, path, patch):
        """Apply a merge patch to an object and return it; the path may end in `/status`."""
        return self._decode(self.try_patch(path, patch))

    def grant(self, user, rules, namespace=""):
        """Grant the rights of these RBAC rules to a user, in one namespace or in all."""
        group, kind = "rbac.authorization.k8s.io", "Role" if namespace else "ClusterRole"
        role, subject = ({"apiGroup": group, "kind": each, "name": user} for each in (kind, "User"))
        build = partial(build_manifest, f"{group}/v1", name=user, namespace=namespace)
        self.apply(build(kind, rules=[dict(rule) for rule in rules]))
        self.apply(build(f"{kind}Binding", roleRef=role, subjects=[subject]))

    def get(self, path):
        answer = self.request("GET", path)
        return None if answer.status_code == httpx.codes.NOT_FOUND else self._decode(answer)

    def get_existing(self, path):
        """Return an object. Fails the test if it does not exist."""
        found = self.get(path)
        assert found is not None, path
        return found

    def items(self, path, **selectors):
        """Return the objects of a list, filtered by query parameters such as `labelSelector="a=b"`."""
        return self._decode(self.request("GET", path, params=selectors))["items"]

    def delete(self, path):
        answer = self.request("DELETE", path, params={"propagationPolicy": "Background"})
        if answer.status_code != httpx.codes.NOT_FOUND:
            self._decode(answer)

    @contextlib.contextmanager
    def having(self, *manifests):
        with contextlib.ExitStack() as undo:
            for manifest in manifests:
                self.apply(manifest)
                undo.callback(self.delete, f"{path_of(manifest)}/{manifest['metadata']['name']}")
            yield

    def wait_until_gone(self, path):
        wait_for(lambda: self.get(path), lambda found: found is None)

    def watch(self, path, **parameters):
        """Yield the events of a watch until the server ends it."""
        asked = {"watch": "true", **parameters}
        with self._client.stream("GET", path, params=asked, timeout=None) as answer:
            for line in answer.iter_lines():
                yield json.loads(line)

    @staticmethod
    def _decode(answer):
        assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.text}"
        return answer.json()


def manifests(file):
    # Some CRD files have 40,000 lines, for which the pure Python loader needs half a minute.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [manifest for manifest in yaml.load_all(file.read_text(), Loader=loader) if manifest]


def build_manifest(api_version, kind, name, namespace="", **fields):
    """Return an object; those of the `fields` that are in `_OF_METADATA` become part of its metadata."""
    metadata = {key: fields.pop(key) for key in _OF_METADATA if key in fields}
    where = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, **where, **metadata},
        **fields,
    }


def has_condition(manifest, kind):
    """True if an object exists and has this condition with the status `True`."""
    conditions = (manifest or {}).get("status", {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def path_of(manifest):
    """Return the path at which the API server lists and creates objects of this kind."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = re.sub("ys$", "ies", kind.lower() + ("es" if kind.endswith("s") else "s"))
    namespace = manifest["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def jobs(namespace, name=""):
    return f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs" + (f"/{name}" if name else "")


def pods(namespace, name=""):
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


def finish_job(api, path, kind, at="2026-01-01T00:00:00Z"):
    """Write the condition `Succeeded` or `Failed` of a job, as the operator does."""
    condition = {"type": kind, "status": "True", "reason": f"PyTorchJob{kind}", "message": "played"}
    api.patch(f"{path}/status", {"status": {"conditions": [{**condition, "lastTransitionTime": at}]}})
