"""The list and get requests of the doctor, each with its `Subject`, the kind of fact that it reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend_plugin.core.scheduling.registry import list_schedulers
from backend_plugin.doctor.facts import Subject
from backend_plugin.doctor.operators.table import OPERATORS
from backend_plugin.kube.api_resources import JOBS, POD_TEMPLATES, PODS, ApiResource, build_api_resource

NAMES_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The Accept header for object metadata only, so that the data of Secrets and ConfigMaps is never read."""
_DNS: Final = {"labelSelector": "k8s-app=kube-dns"}
_FEW: Final = 200

SCHEMAS: Final = ApiResource(group="apiextensions.k8s.io", version="v1", plural="customresourcedefinitions")
DEPLOYMENTS: Final = ApiResource(group="apps", version="v1", plural="deployments")
_SLICES: Final = ApiResource(group="discovery.k8s.io", version="v1", plural="endpointslices")


def _build_core_resource(plural: str) -> ApiResource:
    return ApiResource(group="", version="v1", plural=plural)


CONFIG_MAPS: Final = _build_core_resource("configmaps")
_SECRETS: Final = _build_core_resource("secrets")
_JOB_SCHEMAS: Final = (
    *map(str, JOBS.values()),
    *(name for each in OPERATORS.values() for name in each.schemas),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A request for a list, or for one object if `name` is set."""

    subject: Subject
    resource: ApiResource
    namespace: str = ""
    """The namespace to read; empty for all namespaces, or for a cluster-scoped kind."""
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = "application/json"
    most: int = 0
    """The maximum number of objects; 0 for all."""

    @property
    def verb(self) -> str:
        """The RBAC verb of the request."""
        return "get" if self.name else "list"


def build_base_queries(namespace: str, flyte: str, templates: str) -> Sequence[Query]:
    """Return the requests that do not depend on the manifests of the task.

    `namespace` is that of the job, and `flyte` that of Flyte. `templates` is the namespace with the
    PodTemplates for jobs whose own namespace has no PodTemplate of the required name.
    """
    kinds = {
        Subject.QUOTAS: _build_core_resource("resourcequotas"),
        Subject.LIMIT_RANGES: _build_core_resource("limitranges"),
        Subject.POLICIES: ApiResource(group="networking.k8s.io", version="v1", plural="networkpolicies"),
        Subject.ACCOUNTS: _build_core_resource("serviceaccounts"),
        Subject.CLAIMS: _build_core_resource("persistentvolumeclaims"),
    }
    return (
        Query(subject=Subject.NAMESPACE, resource=_build_core_resource("namespaces"), name=namespace),
        *(Query(subject=Subject.JOB_SCHEMA, resource=SCHEMAS, name=each) for each in _JOB_SCHEMAS),
        Query(subject=Subject.DEPLOYMENTS, resource=DEPLOYMENTS),
        *(Query(subject=Subject.JOBS, resource=each, most=_FEW) for each in JOBS.values()),
        Query(subject=Subject.NODES, resource=_build_core_resource("nodes")),
        *(Query(subject=each, resource=kinds[each], namespace=namespace) for each in kinds),
        Query(subject=Subject.SECRETS, resource=_SECRETS, namespace=namespace, accept=NAMES_ONLY),
        Query(subject=Subject.CONFIG_MAPS, resource=CONFIG_MAPS, namespace=namespace, accept=NAMES_ONLY),
        Query(
            subject=Subject.PRIORITIES,
            resource=ApiResource(group="scheduling.k8s.io", version="v1", plural="priorityclasses"),
        ),
        *(
            Query(subject=Subject.TEMPLATES, resource=POD_TEMPLATES, namespace=each)
            for each in dict.fromkeys((namespace, templates, flyte))
        ),
        Query(subject=Subject.FLYTE_CONFIG, resource=CONFIG_MAPS, namespace=flyte),
        Query(subject=Subject.SERVICES, resource=_build_core_resource("services"), namespace=flyte),
        Query(subject=Subject.ENDPOINTS, resource=_SLICES, namespace=flyte),
        Query(subject=Subject.DNS_ENDPOINTS, resource=_SLICES, namespace="kube-system", query=_DNS),
    )


def build_gang_queries(scheduler: str, namespace: str) -> Sequence[Query]:
    """Return the requests for the queues, parent queues and priorities of a gang scheduler."""
    adapter = list_schedulers().get(scheduler)
    if adapter is None:
        return ()
    rows = (
        (Subject.QUEUES, adapter.queues),
        (Subject.PARENT_QUEUES, adapter.parent_queues),
        (Subject.JOB_PRIORITIES, adapter.priorities),
    )
    return [
        Query(
            subject=subject,
            resource=build_api_resource(each),
            namespace=namespace if each.is_namespaced else "",
        )
        for subject, each in rows
        if each is not None
    ]


def build_bound_pod_query(scheduler_name: str) -> Query:
    """Return a request for one pod that the named scheduler has bound to a Kubernetes node."""
    query = {"fieldSelector": f"spec.schedulerName={scheduler_name},spec.nodeName!="}
    return Query(subject=Subject.WAITING_FOR, resource=PODS, query=query, most=1)


def build_config_map_query(namespace: str, name: str) -> Query:
    """Return a request for a ConfigMap that a scheduler mounts."""
    return Query(subject=Subject.SCHEDULER_CONFIG, resource=CONFIG_MAPS, namespace=namespace, name=name)
