"""The training operator with its webhook."""

from pathlib import Path

import httpx
import yaml

from rig.api import build_manifest
from rig.control_plane import HERE, free_ports
from rig.tools import module_directory

NAMESPACE = "kubeflow"
MODULE = "training-operator"  # The version that runs in these tests, 1.9.
OLDER = ("training-operator-1.7", "training-operator-1.8")  # Older versions, used only for their CRDs.
_MODULE = "github.com/kubeflow/training-operator"
HOOK = "validator.training-operator.kubeflow.org"
# The operator waits for a certificate at this fixed path, but serves the one in its TMPDIR.
_LOOKED_FOR = Path("/tmp/k8s-webhook-server/serving-certs")


def crds(component=MODULE):
    root = module_directory(component, _MODULE) / "manifests/base/crds"
    return [root / "kubeflow.org_pytorchjobs.yaml"]


def start(plane, *flags):
    """Install and start the operator; return when it and its webhook are ready."""
    plane.crds(crds())
    plane.namespace(NAMESPACE)
    metrics, health, webhook = free_ports(3)
    serving = plane.authority.server(MODULE, ("training-operator.kubeflow.svc", "localhost", HERE))
    plane.keep_certificates(NAMESPACE, "training-operator-webhook-cert", serving, plane.authority.pair)
    temporary = plane.folder / "operator"
    served = temporary / _LOOKED_FOR.relative_to("/tmp")
    for directory in (served, _LOOKED_FOR):
        directory.mkdir(parents=True, exist_ok=True)
    for name, path in (("tls.key", serving.key), ("tls.crt", serving.certificate)):
        (served / name).write_bytes(path.read_bytes())
        (_LOOKED_FOR / name).touch()
    plane.admin.apply(_webhook(webhook))
    flags_of_rig = (
        "--enable-scheme=pytorchjob",
        f"--kubeconfig={plane.kubeconfig()}",
        f"--metrics-bind-address={HERE}:{metrics}",
        f"--health-probe-bind-address={plane.place.listen}:{health}",
        f"--webhook-server-port={webhook}",
    )
    known = {"MY_POD_NAMESPACE": NAMESPACE, "TMPDIR": str(temporary), "HOME": str(plane.folder)}
    process = plane.enter(plane.process("training-operator", (*flags_of_rig, *flags), known))
    process.wait_until(lambda: plane.place.is_ready(health))
    process.wait_until(lambda: refuses(plane))
    return process


def _webhook(port):
    """Return the webhook of the module with an address instead of a Service.

    The operator adds its authority to the configuration.
    """
    file = module_directory(MODULE, _MODULE) / "manifests/base/webhook/manifests.yaml"
    manifest = yaml.safe_load(file.read_text())
    (hook,) = (each for each in manifest["webhooks"] if "pytorchjob" in each["name"])
    url = f"https://{HERE}:{port}{hook['clientConfig']['service']['path']}"
    return {**manifest, "metadata": {"name": HOOK}, "webhooks": [{**hook, "clientConfig": {"url": url}}]}


def refuses(plane):
    """True if the webhook rejects a job that only the webhook can reject."""
    masters = {"replicas": 2, "template": {"spec": {"containers": []}}}
    spec = {"pytorchReplicaSpecs": {"Master": masters}}
    job = build_manifest("kubeflow.org/v1", "PyTorchJob", "refused", "default", spec=spec)
    return plane.admin.try_create(job).status_code == httpx.codes.FORBIDDEN
