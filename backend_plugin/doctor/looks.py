"""The requests of the doctor: one row per subject."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend_plugin.doctor.facts import Subject
from backend_plugin.kube.kinds import JOBS, POD_TEMPLATES, PODS, Resource

NAMES_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Requests only the metadata of objects, so that the data of users' Secrets and ConfigMaps is never read."""
_DNS: Final = {"labelSelector": "k8s-app=kube-dns"}
_FEW: Final = 200

NAMESPACES: Final = Resource(group="", version="v1", plural="namespaces")
SCHEMAS: Final = Resource(group="apiextensions.k8s.io", version="v1", plural="customresourcedefinitions")
CONFIG_MAPS: Final = Resource(group="", version="v1", plural="configmaps")
DEPLOYMENTS: Final = Resource(group="apps", version="v1", plural="deployments")
_SLICES: Final = Resource(group="discovery.k8s.io", version="v1", plural="endpointslices")
_SERVICES: Final = Resource(group="", version="v1", plural="services")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A request for a list, or for one object if `name` is set."""

    subject: Subject
    resource: Resource
    namespaces: Sequence[str] = ("",)
    """An empty name means all namespaces, or a cluster-scoped kind."""
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    names_only: bool = False
    most: int = 0
    """The maximum number of objects; 0 for all."""


def always(namespace: str, flyte: str, templates: str) -> Sequence[Look]:
    """Return the requests that every cluster receives.

    Args:
        namespace: The namespace of the job.
        flyte: The namespace of Flyte.
        templates: The fallback namespace for PodTemplates.
    """
    here = (namespace,)
    return (
        Look(subject=Subject.NAMESPACE, resource=NAMESPACES, name=namespace),
        Look(subject=Subject.JOB_SCHEMA, resource=SCHEMAS, name=f"{JOBS.plural}.{JOBS.group}"),
        Look(subject=Subject.DEPLOYMENTS, resource=DEPLOYMENTS),
        Look(subject=Subject.JOBS, resource=JOBS, most=_FEW),
        Look(subject=Subject.NODES, resource=_core("nodes")),
        Look(subject=Subject.QUOTAS, resource=_core("resourcequotas"), namespaces=here),
        Look(subject=Subject.LIMIT_RANGES, resource=_core("limitranges"), namespaces=here),
        Look(
            subject=Subject.POLICIES,
            resource=Resource(group="networking.k8s.io", version="v1", plural="networkpolicies"),
            namespaces=here,
        ),
        Look(subject=Subject.ACCOUNTS, resource=_core("serviceaccounts"), namespaces=here),
        Look(subject=Subject.SECRETS, resource=_core("secrets"), namespaces=here, names_only=True),
        Look(subject=Subject.CONFIG_MAPS, resource=CONFIG_MAPS, namespaces=here, names_only=True),
        Look(subject=Subject.CLAIMS, resource=_core("persistentvolumeclaims"), namespaces=here),
        Look(
            subject=Subject.PRIORITIES,
            resource=Resource(group="scheduling.k8s.io", version="v1", plural="priorityclasses"),
        ),
        Look(
            subject=Subject.TEMPLATES,
            resource=POD_TEMPLATES,
            namespaces=tuple(dict.fromkeys((namespace, templates, flyte))),
        ),
        Look(subject=Subject.FLYTE_CONFIG, resource=CONFIG_MAPS, namespaces=(flyte,)),
        Look(subject=Subject.SERVICES, resource=_SERVICES, namespaces=(flyte,)),
        Look(subject=Subject.ENDPOINTS, resource=_SLICES, namespaces=(flyte,)),
        Look(subject=Subject.DNS, resource=_SERVICES, namespaces=("kube-system",), query=_DNS),
        Look(subject=Subject.DNS_ENDPOINTS, resource=_SLICES, namespaces=("kube-system",), query=_DNS),
    )


def of_gang(scheduler: str, namespace: str) -> Sequence[Look]:
    """Return the requests for the queues of a gang scheduler, in the cluster's preferred API versions."""
    kueue, volcano, kai = "kueue.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai"
    rows = {
        "kueue": (
            Look(
                subject=Subject.LOCAL_QUEUES,
                resource=_preferred(kueue, "localqueues"),
                namespaces=(namespace,),
            ),
            Look(subject=Subject.CLUSTER_QUEUES, resource=_preferred(kueue, "clusterqueues")),
            Look(subject=Subject.WORKLOAD_PRIORITIES, resource=_preferred(kueue, "workloadpriorityclasses")),
        ),
        "volcano": (Look(subject=Subject.VOLCANO_QUEUES, resource=_preferred(volcano, "queues")),),
        "kai": (Look(subject=Subject.KAI_QUEUES, resource=_preferred(kai, "queues")),),
    }
    return rows.get(scheduler, ())


def bound(scheduler_name: str) -> Look:
    """Return a request for one pod that this scheduler has bound to a Kubernetes node."""
    query = {"fieldSelector": f"spec.schedulerName={scheduler_name},spec.nodeName!="}
    return Look(subject=Subject.WAITING_FOR, resource=PODS, query=query, most=1)


def config_map(namespace: str, name: str) -> Look:
    """Return a request for a ConfigMap that a scheduler mounts."""
    return Look(subject=Subject.SCHEDULER_CONFIG, resource=CONFIG_MAPS, namespaces=(namespace,), name=name)


def _core(plural: str) -> Resource:
    return Resource(group="", version="v1", plural=plural)


def _preferred(group: str, plural: str) -> Resource:
    return Resource(group=group, version="", plural=plural)
