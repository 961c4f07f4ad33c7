"""Builders for minimal pod requests, to which a test adds the fields that it is about."""

from builders import a_run, reject
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict

from backend_plugin.core import settings
from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.job import Attempt, ReplicaGroup, ReplicaRole
from backend_plugin.core.manifest.pod import build_pod_templates
from backend_plugin.core.manifest.pod_draft import PodRequest

RUN = a_run(execution="e", project="p", domain="d", namespace="p-d", attempt=1, task_project="tp")
WORKER = ReplicaGroup(role=ReplicaRole.WORKER, replicas=2, restart_policy="Never")
MASTER = ReplicaGroup(role=ReplicaRole.MASTER, replicas=1, restart_policy="Never")
OF_RUN = [
    {"name": "FLYTE_INTERNAL_EXECUTION_ID", "value": "e"},
    {"name": "FLYTE_INTERNAL_EXECUTION_PROJECT", "value": "p"},
    {"name": "FLYTE_INTERNAL_EXECUTION_DOMAIN", "value": "d"},
    {"name": "FLYTE_ATTEMPT_NUMBER", "value": "1"},
    {"name": "FLYTE_INTERNAL_TASK_PROJECT", "value": "tp"},
    {"name": "FLYTE_INTERNAL_TASK_DOMAIN", "value": "development"},
    {"name": "FLYTE_INTERNAL_TASK_NAME", "value": "module.train"},
    {"name": "FLYTE_INTERNAL_TASK_VERSION", "value": "v1"},
]
FOR_TRAINING = [{"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "OMP_NUM_THREADS", "value": "1"}]
TRUTHFUL = [
    {"name": "FLYTE_FAIL_ON_ERROR", "value": "true"},
    {"name": "_F_WN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "_F_DES", "value": "Earliest"},
]
DEFAULT_RESOURCES = {part: {"cpu": "1", "memory": "1Gi"} for part in ("limits", "requests")}
TRAINER = {
    "name": "pytorch",
    "image": "trainer:v1",
    "args": ["train"],
    "env": [*OF_RUN, *FOR_TRAINING, *TRUTHFUL],
    "resources": DEFAULT_RESOURCES,
    "terminationMessagePolicy": "FallbackToLogsOnError",
}
SPEC = {"containers": [TRAINER], "affinity": {}, "restartPolicy": "Never"}
METADATA = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}


def container(rest=None, **container) -> TaskTemplate:
    """Return a container task as FlytePropeller sends it: only its args are rendered."""
    target = {"type": "pytorch", "container": {"image": "trainer:v1", "args": ["train"], **container}}
    return ParseDict({**target, **(rest or {})}, TaskTemplate())


def rendered(spec, primary: str = "primary", **rest) -> TaskTemplate:
    """Return a pod task as FlytePropeller sends it, with everything that Flyte adds to a pod."""
    containers = [
        {"image": "trainer:v1", **each, "env": [*each.get("env", ()), OF_RUN[0]]}
        for each in spec["containers"]
    ]
    pod = {"podSpec": {**spec, "containers": containers}, **rest.pop("k8sPod", {})}
    return ParseDict(
        {"type": "pytorch", "k8sPod": pod, "config": {"primary_container_name": primary}, **rest},
        TaskTemplate(),
    )


def unrendered(*containers) -> TaskTemplate:
    """Return a pod task to which FlytePropeller has added nothing, with the primary container ``main``."""
    target = {"k8sPod": {"podSpec": {"containers": containers}}}
    return ParseDict({**target, "config": {"primary_container_name": "main"}}, TaskTemplate())


def pod_template(name: str = "base", namespace: str = "p-d", **spec):
    """Return a core/v1 PodTemplate with the container ``default``, because the API server requires one."""
    containers = spec.pop("containers", [{"name": "default", "image": "x"}])
    metadata = spec.pop("metadata", {})
    return {
        "metadata": {"name": name, "namespace": namespace},
        "template": {"metadata": metadata, "spec": {"containers": containers, **spec}},
    }


def request(template, section=None, *known, run: Attempt = RUN) -> PodRequest:
    return PodRequest(
        template=template,
        run=run,
        settings=settings.read(section or {}),
        dialect=DEFAULT,
        pod_templates=known,
    )


def pod(template, section=None, *known, run: Attempt = RUN, group: ReplicaGroup = WORKER):
    (made,), _ = build_pod_templates(request(template, section, *known, run=run), [group])
    return made


def refused(*args, **kwargs) -> list[tuple[str, str]]:
    return [(problem.field, problem.value) for problem in reject(pod, *args, **kwargs)]
