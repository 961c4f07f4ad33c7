"""Kubeflow Trainer and JobSet, which together run TrainJobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from rig import kubelet
from rig.api import Api, build_manifest, manifests, pods
from rig.control_plane import HERE, free_ports
from rig.policies import encode_authority, redirect
from rig.process import wait_for
from rig.tools import module_directory

API_VERSION = "trainer.kubeflow.org/v1alpha1"
TRAINJOBS = f"/apis/{API_VERSION}/namespaces/{{}}/trainjobs"
RUNTIMES = f"/apis/{API_VERSION}/namespaces/{{}}/trainingruntimes"
"""API paths with a place for the namespace."""
_ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, kw_only=True)
class _Manager:
    """A controller manager, with paths in its module."""

    program: str
    module: str
    crds: str
    webhooks: str
    configuration: str  # The API version of the configuration.
    certificates: str  # The field of the configuration that enables own certificates.
    selectors: Mapping[str, Mapping[str, Any]]
    """The object selector that the installation adds to the webhooks of a resource."""

    @property
    def _directory(self):
        return module_directory(self.program, self.module)

    def list_crds(self):
        return sorted(self._directory.glob(self.crds))

    def build_webhooks(self, address, authority):
        for manifest in manifests(self._directory / self.webhooks):
            name = f"{self.program}-{manifest['metadata']['name']}"  # Both modules have the same names.
            hooks = []
            for hook in manifest["webhooks"]:
                (resource,) = (resource for rule in hook["rules"] for resource in rule["resources"])
                selector = {"objectSelector": self.selectors.get(resource, {})}
                hooks.append({**redirect(hook, address, authority), **selector})
            yield {**manifest, "metadata": {"name": name}, "webhooks": hooks}


def _matches(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


_CHECKED = _matches("trainer.kubeflow.org/webhook-validation", "NotIn", "disabled")
_JOBSET = _Manager(
    program="jobset",
    module="sigs.k8s.io/jobset",
    crds="config/components/crd/bases/*.yaml",
    webhooks="config/components/webhook/manifests.yaml",
    configuration="config.jobset.x-k8s.io/v1alpha1",
    certificates="internalCertManagement",
    selectors={"pods": _matches("jobset.sigs.k8s.io/jobset-name", "Exists")},
)
_TRAINER = _Manager(
    program="trainer",
    module="github.com/kubeflow/trainer/v2",
    crds="manifests/base/crds/trainer.kubeflow.org_*.yaml",
    webhooks="manifests/base/webhook/manifests.yaml",
    configuration="config.trainer.kubeflow.org/v1alpha1",
    certificates="certManagement",
    selectors={"clustertrainingruntimes": _CHECKED, "trainingruntimes": _CHECKED},
)


def list_crds():
    return [*_JOBSET.list_crds(), *_TRAINER.list_crds()]


def build_runtime(name, image):
    """Return a runtime as a platform provides it, with Trainer's policy for torch."""
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": image}]}}
    nodes = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": pod},
    }
    spec = {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"replicatedJobs": [{"name": "node", "template": nodes}]}},
    }
    labels = {"trainer.kubeflow.org/framework": "torch"}
    return build_manifest(API_VERSION, "ClusterTrainingRuntime", name, labels=labels, spec=spec)


def list_pods(api, namespace, job):
    """Return the newest pods of a TrainJob by role and index, such as `node-0`, without terminating ones."""
    found = api.items(pods(namespace), labelSelector=f"jobset.sigs.k8s.io/jobset-name={job}")
    kept = [each for each in found if "deletionTimestamp" not in each["metadata"]]
    kept.sort(key=lambda each: str(each["metadata"]["creationTimestamp"]))
    labels = [each["metadata"]["labels"] for each in kept]
    return {f"{of[_ROLE]}-{of[_INDEX]}": each for of, each in zip(labels, kept, strict=True)}


@dataclass(frozen=True)
class PlayedJob:
    api: Api
    namespace: str
    name: str

    @property
    def pods(self):
        return list_pods(self.api, self.namespace, self.name)

    @property
    def placed(self):
        return {name for name, pod in self.pods.items() if "nodeName" in pod["spec"]}

    @property
    def uids(self):
        return {name: pod["metadata"]["uid"] for name, pod in self.pods.items()}

    def list_replaced(self, uids):
        """Return the pods that have other uids; none while a pod is missing."""
        now = self.uids
        return {name for name in now if now[name] != uids[name]} if now.keys() == uids.keys() else set()

    def wait_for(self, *names):
        """Wait until these pods have nodes; a pod that runs already would get none."""
        wait_for(lambda: self.placed, lambda placed: placed >= {*names})

    def run(self, *names):
        self.wait_for(*names)
        for name in names:
            kubelet.run(self.api, self.pods[name])

    def end(self, name, code=0, **status):
        kubelet.end(self.api, self.pods[name], code, **status)


def build_options(**options):
    """Return a part of the `custom` field of a task: the options of its TrainJob."""
    return {"kfpytorch": {"version": 1, "trainJob": options}}


def find_sources():
    return module_directory(_TRAINER.program, _TRAINER.module)


def list_runtimes():
    """Return the ClusterTrainingRuntimes of Trainer, without those of torchtune."""
    files = sorted((find_sources() / "manifests/base/runtimes").glob("*.yaml"))
    return [each for file in files for each in manifests(file) if each["kind"] == "ClusterTrainingRuntime"]


def start(plane):
    """Install and start JobSet and Trainer; return when they and their webhooks are ready.

    Start the scheduler before, because its CRDs of PodGroups make Trainer support gangs.
    """
    serving = plane.authority.server("trainer")
    _start(plane, _JOBSET, serving)
    trainer = _start(plane, _TRAINER, serving)
    # Trainer may report that it is ready before it has registered its webhooks, the one of TrainJobs last.
    trainer.wait_until(lambda: _is_validated(plane))


def _is_validated(plane):
    """True if Trainer's webhook rejects a TrainJob whose runtime does not exist."""
    job = build_manifest(API_VERSION, "TrainJob", "valid", "default", spec={"runtimeRef": {"name": "absent"}})
    return plane.admin.try_create(job).status_code == httpx.codes.FORBIDDEN


def _start(plane, manager, serving):
    plane.crds(manager.list_crds())
    (webhook,) = free_ports(1)
    folder = plane.folder / manager.program
    # Without own certificates, a manager uses those of a folder below TMPDIR.
    served = folder / "k8s-webhook-server/serving-certs"
    served.mkdir(parents=True)
    (served / "tls.crt").write_bytes(serving.certificate.read_bytes())
    (served / "tls.key").write_bytes(serving.key.read_bytes())
    authority = encode_authority(plane.authority.certificate)
    for manifest in manager.build_webhooks(f"https://{HERE}:{webhook}", authority):
        plane.admin.apply(manifest)
    configuration = {"apiVersion": manager.configuration, manager.certificates: {"enable": False}}
    return plane.start_manager(manager.program, folder, webhook, configuration)
