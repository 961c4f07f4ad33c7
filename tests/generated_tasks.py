"""A fixed set of generated task templates in the form that Flyte serializes, including invalid values.

One case is one input line, both for ``render --batch`` and for the Go plugin.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import dice as parts
from dice import Dice, Json, entries, resources

SEED = 20251121  # An arbitrary seed. The name of a failing case identifies it for this seed.

RESTARTS = [*(f"RESTART_POLICY_{name}" for name in ("ALWAYS", "ON_FAILURE", "NEVER")), 0.0, 1.0, 2.0]
CLEANING: list[Any] = ["CLEANPOD_POLICY_NONE", "CLEANPOD_POLICY_RUNNING", "CLEANPOD_POLICY_ALL", 1.0]
SECONDS = [0.0, 1.0, 600.0, 86400.0]
RUN_POLICY = {
    "cleanPodPolicy": CLEANING,
    "ttlSecondsAfterFinished": SECONDS,
    "activeDeadlineSeconds": SECONDS,
    "backoffLimit": [0.0, 3.0],
}
BACKENDS = ["c10d", "etcd-v2", "static"]
ELASTIC = {"rdzvBackend": BACKENDS, "nprocPerNode": [1.0, 2.0, 8.0], "maxRestarts": [0.0, 3.0]}
SECRETS: list[Json] = [
    {"group": "g", "key": "k"},
    {"group": "g", "groupVersion": "2", "key": "k", "mountRequirement": "ENV_VAR"},
    {"key": "my-key", "mountRequirement": "FILE"},
    {"group": "g", "key": "k", "envVar": "TOKEN"},
]
ACCELERATORS: list[Json] = [
    {"device": "nvidia-tesla-t4"},
    {"device": "nvidia-tesla-a100", "partitionSize": "1g.5gb"},
    {"device": "nvidia-tesla-a100", "unpartitioned": True},
    {"device": "nvidia-tesla-a100", "unpartitioned": False},
    {"device": "", "partitionSize": "2g.10gb"},
]
SHARED_MEMORY: list[Json] = [
    {"mountName": "flyte-shared-memory", "mountPath": "/dev/shm"},
    {"mountName": "flyte-shared-memory", "mountPath": "/dev/shm", "sizeLimit": "2Gi"},
]
ARGS = [
    *("pyflyte-execute", "--inputs", "s3://b/metadata/inputs.pb"),
    *("--output-prefix", "s3://b/metadata/0", "--"),
]


def container(dice: Dice) -> Json:
    written: Json = {"image": dice.pick(parts.IMAGES), "args": list(ARGS)}
    if dice.yes(0.7):
        written["resources"] = entries(resources(dice, parts.QUANTITIES, 0.4))
    if dice.yes(0.5):
        written["env"] = dice.few([{"key": "LEVEL", "value": "debug"}, {"key": "A", "value": ""}], 2)
    if dice.yes(0.1):
        written["command"] = ["torchrun"]
    return written


def pod_container(dice: Dice, name: str) -> Json:
    """Return a container of a pod spec. Flyte fills in the image and args of the primary container."""
    written: Json = {"name": name, "image": dice.pick(parts.IMAGES)}
    if dice.yes(0.6):
        written["resources"] = resources(dice, parts.KUBERNETES_QUANTITIES, 0.25)
    fields = {
        "env": dice.few(parts.ENVIRONMENT, 3),
        "volumeMounts": dice.few(parts.MOUNTS, 2),
        "securityContext": dice.pick(parts.SECURITY),
        "command": ["sleep"],
        "args": ["9"],
        "imagePullPolicy": "Always",
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "workingDir": "/work",
        "ports": [{"containerPort": 8080, "name": "http"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    written.update(dice.keep(fields, 0.25))
    return {**written, **(dice.pick(parts.OF_CONTAINERS) if dice.yes(0.2) else {})}


def pod(dice: Dice) -> Json:
    """Return a k8s_pod target, as from an author's PodTemplate, with the name of its primary container."""
    primary = dice.pick(["primary", "trainer", "main"])
    containers = [{**pod_container(dice, primary), "args": list(ARGS)}]
    for name in dice.few(["logs", "proxy", "default"], 2) if dice.yes(0.4) else []:
        containers.insert(dice.randint(0, 1), pod_container(dice, name))
    spec: Json = {"containers": containers}
    if dice.yes(0.3):
        spec["initContainers"] = [pod_container(dice, name) for name in dice.few(["init", "fetch"], 2)]
        if spec["initContainers"] and dice.yes(0.3):
            spec["initContainers"][0]["restartPolicy"] = "Always"
    fields = {
        "volumes": dice.few(parts.VOLUMES, 3),
        "tolerations": dice.few(parts.TOLERATIONS, 2),
        "nodeSelector": dice.pick([{"pool": "train"}, {"disk": "ssd"}]),
        "affinity": dice.pick(parts.AFFINITIES),
        "serviceAccountName": "trainer",
        "schedulerName": "kai-scheduler",
        "priorityClassName": "high",
        "hostNetwork": True,
        "securityContext": dice.pick(parts.POD_SECURITY),
        "dnsConfig": dice.pick(parts.DNS),
        "restartPolicy": "OnFailure",
        "imagePullSecrets": [{"name": "pull"}],
        "terminationGracePeriodSeconds": 30,
        "runtimeClassName": "nvidia",
    }
    spec.update(dice.keep(fields, 0.15))
    spec.update(dice.pick(parts.OF_PODS) if dice.yes(0.3) else {})
    target: Json = {"podSpec": spec}
    if dice.yes(0.5):
        target["metadata"] = parts.labels_and_note(dice, "x")
    return {"k8sPod": target, "config": {"primary_container_name": primary}}


def role(dice: Dice, replicas: float | None) -> Json:
    """Return a replica spec, in the flat form or under ``common``."""
    fields: Json = dice.some({"image": [*parts.IMAGES, ""], "restartPolicy": RESTARTS}, 0.3)
    if replicas is not None:
        fields["replicas"] = replicas
    if dice.yes(0.3):
        fields["resources"] = entries(resources(dice, parts.QUANTITIES, 0.4))
    return {"common": fields} if dice.yes(0.4) else fields


def elastic_policy(dice: Dice) -> tuple[Json, float]:
    most = dice.pick([1.0, 2.0, 4.0])
    least = dice.pick([1.0, most])
    return {"minReplicas": least, "maxReplicas": most, **dice.some(ELASTIC, 0.97)}, most


def custom(dice: Dice, version: int) -> Json:
    """Return the `custom` field of a task template."""
    written: Json = {}
    workers = dice.pick([0.0, 1.0, 2.0, 5.0])
    if dice.yes(0.4):
        written["elasticConfig"], workers = elastic_policy(dice)
    if version == 0:
        return {**written, "workers": workers}
    written["workerReplicas"] = role(dice, workers)
    if dice.yes(0.8):
        written["masterReplicas"] = role(dice, dice.pick([None, 1.0]))
    if dice.yes(0.4):
        written["runPolicy"] = dice.some(RUN_POLICY, 0.5)
    return written


def template(dice: Dice) -> Json:
    """Return a task template in its registered form."""
    version = dice.pick([0, 1, 1, 1, 1])
    target = {"container": container(dice)} if dice.yes(0.6) else pod(dice)
    about: Json = {"retries": {"retries": 1}, "runtime": {"type": "FLYTE_SDK", "flavor": "python"}}
    if dice.yes(0.2):
        about["podTemplateName"] = dice.pick(["gang", "plain"])
    if dice.yes(0.2):
        about["metadata"] = parts.labels_and_note(dice, "task")
    written = {
        "id": {**parts.TASK},
        "type": "pytorch",
        "taskTypeVersion": version,
        "metadata": about,
        "interface": {},
        "custom": custom(dice, version),
        **target,
    }
    if dice.yes(0.2):
        written["securityContext"] = {"secrets": dice.few(SECRETS, 3)}
    extended: Json = {}
    if dice.yes(0.25):
        extended["gpuAccelerator"] = dice.pick(ACCELERATORS)
    if dice.yes(0.2):
        extended["sharedMemory"] = dice.pick(SHARED_MEMORY)
    return {**written, "extendedResources": extended} if extended else written


def case(dice: Dice, number: int) -> Json:
    about, prefix = parts.metadata(dice)
    written = {
        "id": f"case-{number}",
        "template": template(dice),
        "metadata": about,
        "output_prefix": prefix,
        "settings": parts.settings(dice),
        "pod_templates": parts.pod_templates(dice),
    }
    if dice.yes(0.12):
        name, spoil = dice.choice(SPOILT)
        spoil(written)
        written["id"] += f"-{name}"
    return written


def set_value(*path: Any, value: Any) -> Callable[[Json], None]:
    """Return a mutation that writes a value and creates missing parent objects."""

    def spoil(written: Any) -> None:
        for key in path[:-1]:
            written = written.setdefault(key, {})
        written[path[-1]] = value

    return spoil


def drop(*path: str) -> Callable[[Json], None]:
    return lambda written: reduce(lambda part, key: part.get(key, {}), path[:-1], written).pop(path[-1], None)


def no_target(written: Json) -> None:
    written["template"].pop("container", None)
    written["template"].pop("k8sPod", None)


def change_container(**fields: Any) -> Callable[[Json], None]:
    """Return a mutation that replaces the target with this container."""

    def spoil(written: Json) -> None:
        no_target(written)
        written["template"]["container"] = fields

    return spoil


def change_workers(**fields: Any) -> Callable[[Json], None]:
    """Return a mutation that replaces the config with these workers."""
    return lambda written: written["template"].update(taskTypeVersion=1, custom={"workerReplicas": fields})


def change_request(quantity: str, name: str = "CPU") -> Callable[[Json], None]:
    """Return a mutation that replaces the config with two workers that request this quantity."""
    return change_workers(replicas=2.0, resources=entries({"requests": {name: quantity}}))


def change_pod(**spec: Any) -> Callable[[Json], None]:
    """Return a mutation that replaces the target with this pod, with primary container `main`."""

    def spoil(written: Json) -> None:
        no_target(written)
        written["template"]["k8sPod"] = {"podSpec": spec}
        written["template"]["config"] = {"primary_container_name": "main"}

    return spoil


def build_elastic(least: float, most: float) -> Json:
    return {"minReplicas": least, "maxReplicas": most, "nprocPerNode": 1.0}


ELASTIC_CONFIG = ("template", "custom", "elasticConfig")
TRAINER = {"name": "main", "image": "a:1"}
SHM = ("template", "extendedResources", "sharedMemory")
SPOILT: list[tuple[str, Callable[[Json], None]]] = [
    ("no-target", no_target),
    ("other-type", set_value("template", "type", value="spark")),
    ("two-masters", set_value("template", "custom", "masterReplicas", value={"replicas": 2.0})),
    ("no-gang", set_value("template", "custom", "kfpytorch", value={"gang": {"minMember": -1.0}})),
    ("no-custom", drop("template", "custom")),
    ("empty-custom", set_value("template", "custom", value={})),
    ("version-2", set_value("template", "taskTypeVersion", value=2)),
    ("no-version", drop("template", "taskTypeVersion")),
    ("custom-of-0-in-1", set_value("template", "custom", value={"workers": 2.0})),
    ("no-primary-name", drop("template", "config")),
    ("wrong-primary-name", set_value("template", "config", value={"primary_container_name": "other"})),
    ("no-such-pod-template", set_value("template", "metadata", "podTemplateName", value="missing")),
    ("negative-workers", change_workers(replicas=-1.0)),
    ("half-a-worker", change_workers(replicas=2.5)),
    ("workers-as-text", change_workers(replicas="3")),
    ("unknown-key", change_workers(replicas=2.0, colour="red")),
    ("restart-policy-7", change_workers(replicas=2.0, restartPolicy=7.0)),
    ("restart-policy-text", change_workers(replicas=2.0, restartPolicy="SOMETIMES")),
    ("snake-case", set_value("template", "custom", value={"worker_replicas": {"replicas": 2.0}})),
    ("duplicate-key", set_value("template", "custom", "worker_replicas", value={"replicas": 2.0})),
    ("null-roles", set_value("template", "custom", "masterReplicas", value=None)),
    ("two-mounts", change_pod(containers=[dict(TRAINER, volumeMounts=parts.MOUNTS[:1] * 2)])),
    ("two-ports", change_pod(containers=[dict(TRAINER, ports=[{"containerPort": 1}] * 2)])),
    ("operators-port", change_pod(containers=[dict(TRAINER, ports=[{"containerPort": 23456, "name": "x"}])])),
    ("two-volumes", change_pod(containers=[TRAINER], volumes=parts.VOLUMES[:1] * 2)),
    ("two-pull-secrets", change_pod(containers=[TRAINER], imagePullSecrets=[{"name": "pull"}] * 2)),
    ("only-container", change_pod(containers=[dict(TRAINER, name="other")])),
    ("port-as-text", change_pod(containers=[dict(TRAINER, ports="80")])),
    ("priority-as-text", change_pod(containers=[TRAINER], priority="high")),
    ("no-task-id", drop("metadata", "taskExecutionId", "taskId")),
    ("bad-quantity", change_request("lots")),
    ("empty-quantity", change_request("")),
    ("negative-quantity", change_request("-1")),
    ("unknown-resource", change_request("1", "TPU")),
    ("zero-quantity", change_request("0")),
    ("storage", change_request("1Gi", "STORAGE")),
    ("no-processes", set_value(*ELASTIC_CONFIG, value={"minReplicas": 2.0, "maxReplicas": 2.0})),
    ("custom-is-wrong", set_value("template", "custom", value={"workerReplicas": [1.0]})),
    ("many-workers", change_workers(replicas=1000000.0)),
    ("unrendered", change_container(image="a:1", args=["{{.input}}", "{{ .OutputPrefix }}"])),
    ("no-image", change_container(args=["run"])),
    ("copilot", change_container(image="a:1", args=["run"], dataConfig={"enabled": True})),
    ("suffix-alone", change_request("Gi", "MEMORY")),
    ("two-named-pytorch", change_pod(containers=[dict(TRAINER, name="pytorch"), TRAINER])),
    ("min-over-max", set_value(*ELASTIC_CONFIG, value=build_elastic(4.0, 2.0))),
    ("more-than-max", set_value(*ELASTIC_CONFIG, value=build_elastic(7.0, 9.0))),
    ("empty-elastic", set_value(*ELASTIC_CONFIG, value={})),
    ("clean-pod-policy-9", set_value("template", "custom", "runPolicy", value={"cleanPodPolicy": 9.0})),
    ("negative-ttl", set_value("template", "custom", "runPolicy", value={"ttlSecondsAfterFinished": -1.0})),
    ("shm-no-path", set_value(*SHM, value={"mountName": "m"})),
    ("shm-no-name", set_value(*SHM, value={"mountPath": "/m"})),
    ("shm-bad-size", set_value(*SHM, value={"mountName": "m", "mountPath": "/m", "sizeLimit": "big"})),
    ("shm-clash", set_value(*SHM, value={"mountName": "data", "mountPath": "/data"})),
    ("empty-template-name", set_value("template", "metadata", "podTemplateName", value="")),
    ("other-namespace", set_value("metadata", "namespace", value="elsewhere")),
]


def cases(count: int, seed: int = SEED) -> list[Json]:
    """Return the given number of cases. The first cases do not depend on the number."""
    return [case(Dice(seed + number), number) for number in range(count)]
