"""The RBAC rules of the chart, generated from the tables of dialects and of gang schedulers."""

from collections.abc import Iterable, Sequence
from typing import Final

from backend_plugin.core.dialects.base import JobResource
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.scheduling.adapter import SchedulerResource
from backend_plugin.core.scheduling.registry import ADAPTERS, list_schedulers
from backend_plugin.kube.api_resources import JOBS, build_api_resource, list_group_kinds

PREREQUISITES: Final = [
    build_api_resource(each.prerequisite) for each in DIALECTS.values() if each.prerequisite
]
"""The resources of the objects that must exist before the jobs."""

_FILE: Final = """\
# RBAC rules of the connector. The roles of the chart and the test cluster use this file, and a table in the
# documentation lists it. Tests fail if a verb is missing or never used. `make generate` writes this file.
server:
{jobs}
{prerequisites}
  - apiGroups: [""]
    resources: [pods]
    verbs: [get, list, watch, patch, delete]
  - apiGroups: [""]
    resources: [pods/log]
    verbs: [get]
  - apiGroups: [""]
    resources: [events]
    verbs: [create, list, watch]
  - apiGroups: [""]
    resources: [podtemplates]
    verbs: [get]
  - apiGroups: [flyte.lyft.com]
    resources: [flyteworkflows]
    verbs: [get]
  # For the pending reason of a job, also if another component creates the pod groups.
{pod_groups}
  # Deactivated before a TrainJob is suspended to end it, because the queue would resume it.
{deactivated}
# Added if gang scheduling is enabled: detection of the capabilities of the cluster.
gangs:
  - apiGroups: [""]
    resources: [limitranges]
    verbs: [list]
{queues}
# Added if gang.scheduler is auto, also for a part: a dry-run create of a pod shows which scheduler it would
# get. Kubernetes has no permission for dry runs only.
dryRuns:
  - apiGroups: [""]
    resources: [pods]
    verbs: [create]
# The Deployments of the operators of jobs. Added if gang scheduling is enabled. Also added to the ClusterRole
# for all namespaces if the setting kfpytorch.dialect is auto. Always in a ClusterRole.
operators:
  - apiGroups: [apps]
    resources: [deployments]
    verbs: [list]
# The same detection as in gangs, for objects outside the namespaces of tasks. Always in a ClusterRole.
gangsEverywhere:
{cluster_queues}
# The runtimes for all namespaces, for `kfpytorch runtimes`. Part of the ClusterRole, if there is one.
clusterRuntimes:
{cluster_runtimes}
# Added if the connector may create pod groups: gang.podGroupsBy backend, gang.scheduler auto, or TrainJobs,
# for which Kubeflow Trainer creates no pod groups.
groups:
{companions}
# The PodTemplate namespace, if `namespaces` contains only exact names and not this one.
templates:
  - apiGroups: [""]
    resources: [podtemplates]
    verbs: [get]
# kfpytorch doctor in helm test. It checks what a job needs, and creates a job and a pod in dry runs, which
# requires the permission to create them. Secrets are excluded, because the verb list also permits reading
# them.
doctor:
  - apiGroups: [""]
    resources: [namespaces]
    verbs: [get]
  - apiGroups: [""]
    resources:
      - nodes
      - resourcequotas
      - limitranges
      - serviceaccounts
      - persistentvolumeclaims
      - podtemplates
      - services
    verbs: [list]
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [get, list]
  - apiGroups: [""]
    resources: [pods]
    verbs: [list, create]
  - apiGroups: [apps]
    resources: [deployments]
    verbs: [list]
  - apiGroups: [apiextensions.k8s.io]
    resources: [customresourcedefinitions]
    verbs: [get]
  - apiGroups: [discovery.k8s.io]
    resources: [endpointslices]
    verbs: [list]
  - apiGroups: [networking.k8s.io]
    resources: [networkpolicies]
    verbs: [list]
  - apiGroups: [scheduling.k8s.io]
    resources: [priorityclasses]
    verbs: [list]
{doctor_jobs}
{doctor_prerequisites}
{doctor_queues}
  # Check the permissions of the connector's ServiceAccount.
  - apiGroups: [authorization.k8s.io]
    resources: [subjectaccessreviews]
    verbs: [create]
"""


def build_file() -> str:
    """Return the content of the file with the rules."""
    schedulers = list_schedulers().values()
    queues = [each.queues for each in schedulers if each.queues is not None]
    observed = [
        each for one in schedulers for each in (one.queues, one.parent_queues, one.priorities) if each
    ]
    jobs = [(each.group, each.plural) for each in JOBS.values()]
    prerequisites = [(each.group, each.plural) for each in PREREQUISITES]
    return _FILE.format(
        jobs=_format_rules(jobs, ("create", "get", "list", "watch", "patch", "delete")),
        prerequisites=_format_rules(prerequisites, ("create", "list", "patch", "delete")),
        deactivated=_format_rules(
            (
                (each.groups.group, each.groups.plural)
                for each in schedulers
                if each.groups is not None and each.words.deactivation is not None
            ),
            ("patch",),
        ),
        pod_groups=_format_rules(
            # Sorted, so that the order of the adapters does not change the chart.
            sorted(
                ((each.resource.group, each.resource.plural) for each in list_group_kinds()), reverse=True
            ),
            ("list", "watch"),
        ),
        queues=_format_list_rules(each for each in queues if each.is_namespaced),
        cluster_queues=_format_list_rules(each for each in queues if not each.is_namespaced),
        cluster_runtimes=_format_rules(
            ((each.group, each.plural) for each in _list_cluster_runtimes()), ("list",)
        ),
        companions="\n".join(
            f"  {name}:\n    {_format_rule([each.group], [each.plural], ('create', 'delete'))}"
            for name, each in _list_created_groups()
        ),
        doctor_jobs=_format_rules(jobs, ("list", "create")),
        doctor_prerequisites=_format_rules(prerequisites, ("create",)),
        doctor_queues=_format_list_rules(sorted(observed, key=lambda each: not each.is_namespaced)),
    )


def _list_cluster_runtimes() -> Iterable[JobResource]:
    """Return the runtimes without a namespace."""
    for dialect in DIALECTS.values():
        if dialect.runtimes is not None:
            yield from (each for each in dialect.runtimes.kinds if not each.namespaced)


def _list_created_groups() -> Iterable[tuple[str, SchedulerResource]]:
    """Return the pod groups that the connector creates, by the name of the scheduler."""
    for name, adapters in sorted(ADAPTERS.items()):
        for each in adapters.values():
            if each.companion is not None and each.groups is not None:
                yield name, each.groups


def _format_list_rules(resources: Iterable[SchedulerResource]) -> str:
    return _format_rules(((each.group, each.plural) for each in resources), ("list",))


def _format_rules(resources: Iterable[tuple[str, str]], verbs: Sequence[str]) -> str:
    """Return one rule for each set of resources, with all API groups that have them."""
    plurals: dict[str, list[str]] = {}
    for group, plural in resources:
        plurals.setdefault(group, []).append(plural)
    groups: dict[tuple[str, ...], list[str]] = {}
    for group, names in plurals.items():
        groups.setdefault(tuple(names), []).append(group)
    return "\n".join(f"  - {_format_rule(each, names, verbs)}" for names, each in groups.items())


def _format_rule(groups: Iterable[str], plurals: Iterable[str], verbs: Iterable[str]) -> str:
    return (
        f"apiGroups: [{', '.join(groups)}]\n"
        f"    resources: [{', '.join(plurals)}]\n"
        f"    verbs: [{', '.join(verbs)}]"
    )
