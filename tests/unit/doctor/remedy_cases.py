# ruff: noqa: E501 - a row a case
"""Facts that violate one check of the doctor, for each check."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.errors import Problem
from backend_plugin.core.plan import Plan
from backend_plugin.core.scheduling.gang_settings import GangSettings
from backend_plugin.core.settings.loader import read
from backend_plugin.doctor import external_probes
from backend_plugin.doctor.facts import DryRunReply, Facts, Permission, PlannedTask, RolePods, Subject
from backend_plugin.server_address import Server

NS = "ns"
GPU = "nvidia.com/gpu"
PROBLEM = Problem(field="f", value="v", message="is wrong", remedy="write another value")
COSCHEDULING = "scheduler-plugins-scheduler"


def build_object(name, namespace=NS, **parts):
    return {"metadata": {"name": name, "namespace": namespace, **parts.pop("metadata", {})}, **parts}


def deployment(name, image, *args, ready=1, **metadata):
    spec = {"template": {"spec": {"containers": [{"image": f"example.org/{image}", "args": [*args]}]}}}
    return build_object(name, "flyte", metadata=metadata, spec=spec, status={"availableReplicas": ready})


def operator(*args, name="training-operator", tag="v1.9.3", ready=1):
    return deployment(name, f"training-operator:{tag}", *args, ready=ready)


def role(count=1, requests=None, **spec):
    container = {"name": "pytorch", "image": "example.org/a:1", "resources": {"requests": requests or {}}}
    labels = {"app.kubernetes.io/managed-by": "flytekitplugins-kfpytorch"}
    pod = build_object("p", metadata={"labels": labels}, spec={"containers": [container], **spec})
    return PlannedTask(roles=[RolePods(name="worker", count=count, needed=count, pod=pod)])


def task_of(job, dialect="PyTorchJob"):
    return PlannedTask(dialect=DIALECTS[dialect], plan=Plan(dialect=dialect, job=job))


def container(**fields):
    return role(containers=[{"name": "pytorch", "image": "example.org/a:1", **fields}])


def volume(**source):
    return {"volumes": [{"name": "v", **source}]}


def node(labels=None, **has):
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", **has}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"conditions": conditions, "allocatable": allocatable, "capacity": allocatable}
    return {"metadata": {"name": "node-0", "labels": labels or {}}, "spec": {}, "status": status}


def template(metadata=None, **spec):
    return build_object("t", template={"metadata": metadata or {}, "spec": spec})


def policy(*types, **rules):
    return build_object("deny", spec={"podSelector": {}, "policyTypes": [*types], **rules})


def flyte(**connector):
    name = "connector-service"
    plugins = {name: {"defaultConnector": connector}} if connector else {}
    tasks = {"default-for-task-types": {"pytorch": name}, "enabled-plugins": [name]}
    return {Subject.FLYTE_CONFIG: [{"tasks": {"task-plugins": tasks}, "plugins": plugins}]}


def facts(objects=None, **fields):
    return Facts(**{"namespace": NS, "objects": objects or {}, **fields})


def queue(name, api_version, kind, **spec):
    return build_object(name, apiVersion=api_version, kind=kind, spec=spec)


KUEUE = GangSettings(scheduler="kueue", queue="team")
LOCAL = queue("team", "kueue.x-k8s.io/v1beta1", "LocalQueue", clusterQueue="all")
BACKEND = GangSettings(scheduler="coscheduling", pod_groups_by="backend")
PAIR = role(2)
TRAIN_JOB = PlannedTask(dialect=DIALECTS["TrainJob"])
TRAINER = deployment("kubeflow-trainer-controller-manager", "trainer-controller-manager:v2.3.0")
TEMPLATED = read({"default-pod-template-name": "t"})
ENDPOINT = "dns:///kfpytorch-backend.flyte.svc.cluster.local:8000"
SERVICE = build_object("kfpytorch-backend", "flyte", spec={"ports": [{"port": 8000}]})
CONNECTOR = deployment("c", "kfpytorch-backend:1", labels={"app.kubernetes.io/version": "0.9.0"})
LATE = {"metadata": {"name": "j", "creationTimestamp": "2026-01-01T00:00:00Z"}}
RULE = Permission(group="kubeflow.org", resource="pytorchjobs", verbs=("create", "get"), namespace=NS)
SINGLE = build_object("data", spec={"accessModes": ["ReadWriteOnce"]}, status={"phase": "Bound"})
CLAIMING = volume(persistentVolumeClaim={"claimName": "data"})
TAINTS = [
    {"key": GPU, "value": "true", "effect": "NoSchedule"},
    {"key": "team", "value": "1", "effect": "NoExecute"},
    {"key": "reserved", "effect": "NoSchedule"},
]
SMALL_QUOTA = build_object("team", spec={"hard": {"requests.cpu": "1"}})
HALF_USED = {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "1"}}
FULL_QUOTA = build_object("team", spec={"hard": {"requests.cpu": "2"}}, status=HALF_USED)
PARENT_QUEUE = queue("all", "kueue.x-k8s.io/v1beta1", "ClusterQueue")
OLD_SCHEMA = {"spec": {"names": {"kind": "TrainJob"}, "versions": [{"name": "v1alpha1"}]}}
SIDECAR = {"name": "x", "env": [{"name": "A", "value": "b"}]}
GROUP = {"scheduling.x-k8s.io/pod-group": "g"}
ONE_PORT = {"ports": [{"port": 23456}]}
ON_GPU, ONE_CPU, TWO_CPUS = (role(requests=each) for each in ({GPU: "1"}, {"cpu": "1"}, {"cpu": "2"}))
NO_WEBHOOK = DryRunReply(message="failed calling webhook")
INVALID = DryRunReply(reason="Invalid", message="spec is wrong")
STORED = DryRunReply(stored={})
NODES, DEPLOYMENTS, POLICIES = Subject.NODES, Subject.DEPLOYMENTS, Subject.POLICIES

CASES: Mapping[str, Facts] = {
    "api-unreachable": facts(unreachable="refused"),
    "api-version": facts(version="v1.24.1"),
    "clock-skew": facts(ahead=timedelta(minutes=2)),
    "namespace-missing": facts(),
    "operator-crd-missing": facts(),
    "operator-crd-outdated": facts({Subject.JOB_SCHEMA: [{"spec": {"versions": [{"name": "v1"}]}}]}),
    "operator-missing": facts(),
    "operator-down": facts({DEPLOYMENTS: [operator(ready=0)]}),
    "operator-outdated": facts({DEPLOYMENTS: [operator(tag="v1.5.0")]}),
    "operator-wrong-scope": facts({DEPLOYMENTS: [operator("--namespace=ml")]}),
    "operator-not-reconciling": facts({Subject.JOBS: [LATE]}, now=datetime(2026, 1, 2, tzinfo=timezone.utc)),
    "webhook-unreachable": facts(invalid_reply=NO_WEBHOOK),
    "webhook-missing": facts({DEPLOYMENTS: [operator()]}, invalid_reply=STORED),
    "trainer-crd-missing": facts(task=TRAIN_JOB),
    "trainer-crd-outdated": facts({Subject.JOB_SCHEMA: [OLD_SCHEMA]}, task=TRAIN_JOB),
    "trainer-missing": facts(task=TRAIN_JOB),
    "trainer-down": facts({DEPLOYMENTS: [deployment("jobset", "jobset:v0.12.0", ready=0)]}, task=TRAIN_JOB),
    "trainer-webhook-unreachable": facts(job_reply=NO_WEBHOOK, task=TRAIN_JOB),
    "trainer-webhook-missing": facts({DEPLOYMENTS: [deployment("jobset", "jobset:v0.12.0"), TRAINER]}, invalid_reply=STORED, task=TRAIN_JOB),
    "gang-rejected": facts(gang_problems=[PROBLEM]),
    "gang-crd-missing": facts(gang=BACKEND),
    "gang-unused": facts({Subject.GROUPS: [{"name": "scheduling.x-k8s.io"}]}),
    "scheduler-missing": facts(gang=BACKEND),
    "scheduler-down": facts({DEPLOYMENTS: [deployment("s", "s:1", f"--scheduler-name={COSCHEDULING}", ready=0)]}, gang=BACKEND),
    "pod-groups-not-created": facts({DEPLOYMENTS: [operator()]}, gang=GangSettings(scheduler="coscheduling", pod_groups_by="operator")),
    "pod-groups-duplicate": facts({DEPLOYMENTS: [operator("--gang-scheduler-name=volcano")]}),
    "queue-missing": facts({Subject.QUEUES: []}, gang=KUEUE),
    "queue-outdated": facts(
        {DEPLOYMENTS: [deployment("kueue-controller-manager", "kueue:v0.16.2")]},
        task=task_of({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}}, "TrainJob"),
    ),
    "queue-closed": facts({Subject.QUEUES: [{**LOCAL, "spec": {"stopPolicy": "Hold"}}]}, gang=KUEUE),
    "queue-too-small": facts(
        {Subject.QUEUES: [queue("team", "scheduling.volcano.sh/v1beta1", "Queue", capability={"cpu": "0"})]},
        gang=GangSettings(scheduler="volcano", queue="team"),
        task=ONE_CPU,
    ),
    "queue-uncovered": facts({Subject.QUEUES: [LOCAL], Subject.PARENT_QUEUES: [PARENT_QUEUE]}, gang=KUEUE, task=ONE_CPU),
    "priority-class-missing": facts(task=role(priorityClassName="urgent")),
    "workload-priority-class-missing": facts(task=task_of({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "urgent"}}}), gang=KUEUE),
    "task-rejected": facts(task=PlannedTask(problems=[PROBLEM])),
    "template-missing": facts(settings=TEMPLATED),
    "job-rejected": facts(job_reply=INVALID),
    "pod-rejected": facts(pod_replies={"worker": INVALID}),
    "job-changed": facts(task=task_of({"spec": {"a": 1}}), job_reply=STORED),
    "pod-changed": facts(task=role(), pod_replies={"worker": STORED}),
    "template-containers": facts({Subject.TEMPLATES: [template(containers=[SIDECAR])]}, settings=TEMPLATED),
    "template-gang": facts({Subject.TEMPLATES: [template(schedulerName=COSCHEDULING)]}, settings=TEMPLATED),
    "template-placeholder": facts({Subject.TEMPLATES: [template({"labels": GROUP})]}, settings=TEMPLATED),
    "quota-too-small": facts({Subject.QUOTAS: [SMALL_QUOTA]}, task=TWO_CPUS),
    "quota-full": facts({Subject.QUOTAS: [FULL_QUOTA]}, task=TWO_CPUS),
    "limit-range": facts(
        {Subject.LIMIT_RANGES: [build_object("most")]},
        pod_replies={"worker": DryRunReply(message="maximum cpu usage per Container is 1, but limit is 2")},
    ),
    "no-ready-node": facts({NODES: [{**node(), "spec": {"unschedulable": True}}]}),
    "node-selector": facts({NODES: [node()]}, task=role(nodeSelector={"pool": "a"})),
    "node-taints": facts({NODES: [{**node(**{GPU: "8"}), "spec": {"taints": TAINTS}}]}, task=ON_GPU),
    "device-missing": facts({NODES: [node()]}, task=ON_GPU),
    "mig-profile": facts({NODES: [node(**{"nvidia.com/mig-1g.5gb": "1"})]}, task=ON_GPU),
    "replica-too-large": facts({NODES: [node()]}, task=role(requests={"cpu": "8"})),
    "gang-too-large": facts({NODES: [node()]}, task=role(2, requests={"cpu": "3"})),
    "device-plugin": facts({NODES: [node({"nvidia.com/gpu.present": "true"})]}),
    "network-ingress": facts({POLICIES: [policy("Ingress")]}, task=PAIR),
    "network-egress": facts({POLICIES: [policy("Egress")]}, task=PAIR),
    "network-ports": facts({POLICIES: [policy("Ingress", ingress=[ONE_PORT])]}, task=PAIR),
    "network-dns": facts({POLICIES: [policy("Egress", egress=[ONE_PORT])]}, task=PAIR),
    "dns-not-ready": facts(),
    "hostname-length": facts(task=role(setHostnameAsFQDN=True, subdomain="s" * 60)),
    "pod-security": facts(pod_replies={"worker": DryRunReply(message='violates PodSecurity "restricted"')}),
    "service-account-missing": facts({Subject.NAMESPACE: [build_object(NS)]}, task=role(serviceAccountName="team")),
    "pull-secret-missing": facts(task=role(imagePullSecrets=[{"name": "pull"}])),
    "image-reference-invalid": facts(task=container(image="An Image")),
    "config-map-missing": facts(task=role(**volume(configMap={"name": "c"}))),
    "secret-missing": facts(task=role(**volume(secret={"secretName": "c"}))),
    "volume-claim-missing": facts(task=role(**CLAIMING)),
    "volume-shared": facts({Subject.CLAIMS: [SINGLE]}, task=role(2, **CLAIMING)),
    "output-store": asyncio.run(external_probes.probe_external(facts(), ["/no/directory"], None)),
    "flyte-outdated": facts({DEPLOYMENTS: [deployment("f", "flyte-binary:v1.16.0")]}),
    "flyte-route": facts({Subject.FLYTE_CONFIG: [{"tasks": {"task-plugins": {"enabled-plugins": ["a"]}}}]}),
    "flyte-connector": facts(flyte()),
    "flyte-timeouts": facts(flyte(timeouts={"GetTask": "1s"})),
    "flyte-names": facts({Subject.FLYTE_CONFIG: [{"plugins": {"connector-service": {"connectors": {"My": {}}}}}]}),
    "flyte-retries": facts(flyte(endpoint=ENDPOINT)),
    "flyte-timeout": facts(flyte(endpoint=ENDPOINT)),
    "connector-service": facts(flyte(endpoint=ENDPOINT)),
    "connector-down": facts({**flyte(endpoint=ENDPOINT), Subject.SERVICES: [SERVICE]}),
    "connector-unreachable": asyncio.run(external_probes.probe_external(facts(), (), Server(address="localhost"))),
    "connector-rbac": facts(missing_permissions={"flyte/c": [RULE]}),
    "connector-version-mismatch": facts({DEPLOYMENTS: [CONNECTOR]}, release="1.0.0"),
}  # fmt: skip
