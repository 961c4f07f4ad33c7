"""Kueue, which admits jobs when their queue has enough quota."""

from rig.api import build_manifest, manifests
from rig.certificates import ClusterAuthority
from rig.control_plane import HERE, dumped, free_ports
from rig.policies import encode_authority, redirect
from rig.tools import module_directory

_NAMESPACE = "kueue-system"
_VERSION = "kueue.x-k8s.io/v1beta2"
_SECRET = "kueue-webhook-server-cert"
_SERVICE = "kueue-webhook-service"
_LOOKED_AT = frozenset({"clusterqueues", "cohorts", "resourceflavors", "workloads"})
"""Kinds that the webhooks of Kueue receive, in addition to those of its jobs.

The webhook for pods is left out, so that pods can be created while Kueue does not run.
"""

OLDER = "kueue"  # Kueue 0.16, which supports PyTorchJobs, and the TrainJobs of Trainer 2.1.
NEWER = "kueue-0.19"  # Kueue 0.19, which supports the TrainJobs of Trainer 2.2 and later.
TRAINJOBS = "trainer.kubeflow.org/trainjob"


def start(plane, framework="kubeflow.org/pytorchjob", release=OLDER):
    """Install and start Kueue for one kind of jobs, whose CRD exists; return when it is ready."""
    plane.namespace(_NAMESPACE)
    (webhook,) = free_ports(1)
    folder = plane.folder / "kueue"
    address = f"https://{HERE}:{webhook}"
    # Kueue uses an existing authority and certificate if their names match. With its internal certificate
    # management disabled, it would require a certificate in a folder of /etc.
    authority = ClusterAuthority(folder, "kueue")
    serving = authority.server("tls", (f"{_SERVICE}.{_NAMESPACE}.svc", HERE))
    plane.keep_certificates(_NAMESPACE, _SECRET, serving, authority.pair)
    trusted = encode_authority(authority.certificate)
    components = module_directory(release, "sigs.k8s.io/kueue") / "config/components"
    plane.crds(list(_kinds(components, folder, {"url": f"{address}/convert", "caBundle": trusted})))
    for manifest in _webhooks(components, address, trusted, f"{framework.rpartition('/')[2]}s"):
        plane.admin.apply(manifest)
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "namespace": _NAMESPACE,
        "webhook": {"certDir": str(folder)},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": _SERVICE,
            "webhookSecretName": _SECRET,
        },
        # The visibility server would listen on all addresses of the machine.
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": [framework]},
    }
    return plane.start_manager(release, folder, webhook, configuration)


def _kinds(components, folder, converting):
    """Write the CRDs of the module with a conversion webhook at an address instead of a Service."""
    for file in sorted((components / "crd/bases").glob("kueue.x-k8s.io_*.yaml")):
        (manifest,) = manifests(file)
        if (components / f"crd/patches/webhook_in_{manifest['spec']['names']['plural']}.yaml").exists():
            webhook = {"clientConfig": dict(converting), "conversionReviewVersions": ["v1"]}
            manifest["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        yield dumped(manifest, folder / file.name)


def _webhooks(components, address, trusted, jobs):
    """Yield the webhooks of the module for the kinds in use, with an address instead of a Service."""
    looked_at = _LOOKED_AT | {jobs}
    for manifest in manifests(components / "webhook/manifests.yaml"):
        hooks = [
            redirect(hook, address, trusted)
            for hook in manifest["webhooks"]
            if {kind.split("/")[0] for rule in hook["rules"] for kind in rule["resources"]} <= looked_at
        ]
        # Kueue looks for webhook configurations with these names.
        name = f"kueue-{manifest['metadata']['name']}"
        yield {**manifest, "metadata": {"name": name}, "webhooks": hooks}


def quota(name, amounts, **fields):
    """Return a ClusterQueue with these quotas, and the ResourceFlavor that it uses."""
    quotas = [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()]
    covered = {"coveredResources": list(amounts), "flavors": [{"name": "any", "resources": quotas}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [covered], **fields}
    return [
        build_manifest(_VERSION, "ResourceFlavor", "any"),
        build_manifest(_VERSION, "ClusterQueue", name, spec=spec),
    ]


def local_queue(namespace, name, cluster_queue):
    return build_manifest(_VERSION, "LocalQueue", name, namespace, spec={"clusterQueue": cluster_queue})


def priority(name, value):
    return build_manifest(_VERSION, "WorkloadPriorityClass", name, value=value)
