"""The environment of a generated task: its execution, the platform settings and the PodTemplates."""

from typing import Any

from dice import (
    AFFINITIES,
    DNS,
    ENVIRONMENT,
    IMAGES,
    KUBERNETES_QUANTITIES,
    LABELS,
    MOUNTS,
    POD_SECURITY,
    REQUIREMENTS,
    SECURITY,
    TASK,
    TOLERATIONS,
    VOLUMES,
    Dice,
    Json,
    resources,
)

NAMESPACE = "p-d"

KNOBS: dict[str, list[Any]] = {
    "inject-finalizer": [True, False],
    "default-annotations": [{"note": "platform"}, {}, {"a.example.com/b": "c", "note": "platform"}],
    "default-labels": [{"team": "platform"}, {"origin": "flyte", "a.example.com/b": "d"}],
    "default-env-vars": [
        [{"LEVEL": "info"}, {"AWS_REGION": "x"}],
        [{"FLYTE_INTERNAL_EXECUTION_ID": "mine"}],
        {"AWS_REGION": "y", "lower": "z"},
    ],
    "default-env-from-configmaps": [["settings"], ["settings", "more"]],
    "default-env-from-secrets": [["keys"]],
    "default-cpus": ["2", "500m"],
    "default-memory": ["2Gi"],
    "default-tolerations": [TOLERATIONS[:1], TOLERATIONS[1:3]],
    "default-node-selector": [{"pool": "flyte"}, {"a.example.com/b": "c"}],
    "default-affinity": AFFINITIES[1:],
    "scheduler-name": ["volcano"],
    "interruptible-tolerations": [TOLERATIONS[2:3]],
    "interruptible-node-selector": [{"pool": "spot"}],
    "interruptible-node-selector-requirement": REQUIREMENTS[:1],
    "non-interruptible-node-selector-requirement": REQUIREMENTS[1:2],
    "resource-tolerations": [{"nvidia.com/gpu": TOLERATIONS[:1]}, {"memory": TOLERATIONS[1:2]}],
    "image-pull-policy": ["Always", "IfNotPresent"],
    "gpu-device-node-label": ["gpu-device"],
    "gpu-partition-size-node-label": ["gpu-partition"],
    "gpu-unpartitioned-node-selector-requirement": [
        {"key": "gpu-partition", "operator": "NotIn", "values": ["1g.5gb"]}
    ],
    "gpu-unpartitioned-toleration": [
        {"key": "gpu-partition", "operator": "Equal", "value": "whole", "effect": "NoSchedule"}
    ],
    "gpu-resource-name": ["amd.com/gpu"],
    "default-pod-security-context": POD_SECURITY,
    "default-security-context": SECURITY,
    "enable-host-networking-pod": [True, False],
    "default-pod-dns-config": DNS,
    "default-pod-template-name": ["gang", "plain", "missing"],
    "add-tolerations-for-extended-resources": [
        ["nvidia.com/gpu"],
        ["vpc.amazonaws.com/efa", "nvidia.com/gpu"],
    ],
    "enable-distributed-error-aggregation": [True],
}
OURS: list[Json] = [
    {"task-resources": {"defaults": {"cpu": "2", "memory": "200Mi"}}},
    {"task-resources": {"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}}},
    {
        "task-resources": {
            "defaults": {"cpu": "500m", "memory": "500Mi", "ephemeral-storage": "1Gi"},
            "limits": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "ephemeral-storage": "100Gi"},
        }
    },
]
ATTEMPT = ("mod-train-n0", "n0", "n0-0-dn3", "start", "a-very-long-node-name-of-a-dynamic-workflow-n12")


def settings(dice: Dice) -> Json:
    """Return a `plugins.k8s` section with no, few or many keys.

    Pod security checks are off, because Flyte's plugin accepts every pod.
    """
    knobs = dice.some(KNOBS, dice.pick([0.0, 0.1, 0.3]))
    ours = dice.pick(OURS) if dice.yes(0.3) else {}
    return {**knobs, "kfpytorch": {**ours, "pod-security": {"mode": "off"}}}


def metadata(dice: Dice) -> tuple[Json, str]:
    """Return the metadata of the task execution and its output prefix."""
    execution, node = f"f{dice.randrange(16**8):08x}", dice.pick(ATTEMPT)
    attempt, interruptible = dice.pick([0, 0, 1]), dice.yes(0.3)
    labels = {
        "domain": "d",
        "execution-id": execution,
        "interruptible": "true" if interruptible else "false",
        "node-id": node,
        "project": "p",
        "shard-key": "7",
        "task-name": "mod-train",
        "workflow-name": "mod-wf",
        **dice.pick(LABELS),
    }
    about: Json = {
        "taskExecutionId": {
            "taskId": {**TASK},
            "nodeExecutionId": {
                "nodeId": node,
                "executionId": {"project": "p", "domain": "d", "name": execution},
            },
            "retryAttempt": attempt,
        },
        "namespace": NAMESPACE,
        "labels": labels,
        "k8sServiceAccount": dice.pick(["", "default", "runner"]),
    }
    if dice.yes(0.05):
        about["interruptible"] = True
    if dice.yes(0.3):
        about["annotations"] = dice.pick(
            [{"note": "execution"}, {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}]
        )
    if dice.yes(0.3):
        about["environmentVariables"] = dice.pick([{"LEVEL": "warn"}, {"A": "1", "B": "2"}])
    if dice.yes(0.3):
        about["identity"] = {"executionIdentity": dice.pick(["jane@example.com", "robot"])}
    return about, f"s3://b/metadata/propeller/p-d-{execution}/{node}/data/{attempt}"


def template_container(dice: Dice, name: str) -> Json:
    """Return a container of a platform's PodTemplate. It has an image because Kubernetes requires one."""
    written: Json = {"name": name, "image": dice.pick(IMAGES)}
    fields = {
        "env": dice.few(ENVIRONMENT, 2),
        "volumeMounts": dice.few(MOUNTS, 1),
        "resources": resources(dice, KUBERNETES_QUANTITIES, 0.3),
        "securityContext": dice.pick(SECURITY),
        "args": ["template"],
        "imagePullPolicy": "Never",
        "terminationMessagePath": "/dev/log",
    }
    return {**written, **dice.keep(fields, 0.3)}


def pod_template(dice: Dice, name: str) -> Json:
    """Return one PodTemplate with some of the container names that Flyte recognizes."""
    names = dice.few(["default", "primary", "logs", "trainer"], 3) or ["noop"]
    spec: Json = {"containers": [template_container(dice, container) for container in names]}
    if dice.yes(0.2):
        spec["initContainers"] = [
            template_container(dice, container)
            for container in dice.few(["default-init", "primary-init", "init"], 2)
        ]
    fields = {
        "volumes": dice.few(VOLUMES, 2),
        "tolerations": dice.few(TOLERATIONS, 2),
        "nodeSelector": {"pool": "template"},
        "affinity": dice.pick(AFFINITIES),
        "serviceAccountName": "template",
        "schedulerName": "template-scheduler",
        "priorityClassName": "low",
        "hostNetwork": True,
        "securityContext": dice.pick(POD_SECURITY),
        "dnsPolicy": "ClusterFirst",
        "dnsConfig": dice.pick(DNS),
        "restartPolicy": "Always",
        "imagePullSecrets": dice.pick([[{"name": "pull"}], [{"name": "template-pull"}]]),
        "terminationGracePeriodSeconds": 10,
    }
    spec.update(dice.keep(fields, 0.2))
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": dice.pick([NAMESPACE, NAMESPACE, "flyte"])},
        "template": {
            "metadata": {"labels": dice.pick(LABELS), "annotations": dice.pick([{}, {"note": "template"}])},
            "spec": spec,
        },
    }


def pod_templates(dice: Dice) -> list[Json]:
    """Return the PodTemplates of the cluster. A task may name a template that is missing."""
    return [pod_template(dice, name) for name in ("gang", "plain") if dice.yes(0.85)]
