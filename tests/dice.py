"""Seeded random choices, the values from which tasks are generated, and the environment of a task.

The environment is its execution, the platform settings and the PodTemplates.
"""

import copy
import random
from typing import Any

Json = dict[str, Any]


class Dice(random.Random):
    """Random choices that are equal for equal seeds on every machine."""

    def yes(self, share):
        """Return True with probability `share`."""
        return self.random() < share

    def some(self, choices, share):
        """Return a value for some of the names."""
        return {name: self.pick(values) for name, values in choices.items() if self.yes(share)}

    def keep(self, fields, share):
        """Return some of the fields that are not empty."""
        return {name: value for name, value in fields.items() if value and self.yes(share)}

    def pick(self, values):
        """Return a copy of one of the values, which the caller may modify."""
        return copy.deepcopy(self.choice(values))

    def few(self, values, most):
        """Return at most `most` of the values, in their order."""
        chosen = sorted(self.sample(range(len(values)), self.randint(0, min(most, len(values)))))
        return [copy.deepcopy(values[index]) for index in chosen]


QUANTITIES: dict[str, list[str]] = {
    "CPU": ["1", "500m", "0.5", "4", "2000m", "1.5", "1e1"],
    "MEMORY": ["1Gi", "512Mi", "1024M", "8Gi", "1.5Gi", "1073741824"],
    "GPU": ["1", "2", "8"],
    "EPHEMERAL_STORAGE": ["10Gi", "500Mi"],
}
KUBERNETES_QUANTITIES: dict[str, list[str]] = {
    "cpu": QUANTITIES["CPU"],
    "memory": QUANTITIES["MEMORY"],
    "nvidia.com/gpu": QUANTITIES["GPU"],
    "gpu": ["1"],
    "amd.com/gpu": ["1", "4"],
    "ephemeral-storage": QUANTITIES["EPHEMERAL_STORAGE"],
    "vpc.amazonaws.com/efa": ["4"],
}
TOLERATIONS: list[Json] = [
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"},
    {"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    {"operator": "Exists"},
]
REQUIREMENTS: list[Json] = [
    {"key": "x-spot", "operator": "In", "values": ["true"]},
    {"key": "x-spot", "operator": "DoesNotExist"},
    {"key": "zone", "operator": "NotIn", "values": ["a", "b"]},
]
REQUIRED, PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))


def require_pools(*pools):
    """Return a node affinity for nodes in one of the pools."""
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [each]}]} for each in pools]
    return {REQUIRED: {"nodeSelectorTerms": terms}}


APART: Json = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "train"}}}
FAST: Json = {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}
AFFINITIES: list[Json] = [
    {},
    {"nodeAffinity": require_pools("train")},
    {
        "nodeAffinity": {**require_pools("train", "spare"), PREFERRED: [{"weight": 10, "preference": FAST}]},
        "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": APART}]},
    },
]
TASK: Json = {"resourceType": "TASK", "project": "p", "domain": "d", "name": "mod.train", "version": "v1"}
"""The identifier of each task."""
POD_SECURITY: list[Json] = [{"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000}, {"runAsNonRoot": True}]
SECURITY: list[Json] = [
    {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    {"privileged": True},
    {"runAsUser": 0, "readOnlyRootFilesystem": True},
]
DNS: list[Json] = [
    {"nameservers": ["8.8.8.8"], "searches": ["ns1.svc"], "options": [{"name": "ndots", "value": "2"}]},
    {"options": [{"name": "edns0"}]},
]
VOLUMES: list[Json] = [
    {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}},
    {"name": "scratch", "emptyDir": {}},
    {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
    {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 256}},
    {"name": "host", "hostPath": {"path": "/mnt", "type": ""}},
    {"name": "cache", "emptyDir": {"medium": "", "sizeLimit": "1024Mi"}},
    {"name": "share", "nfs": {"server": "s", "path": "/", "readOnly": False}},
]
MOUNTS: list[Json] = [
    {"name": "data", "mountPath": "/data", "readOnly": True},
    {"name": "scratch", "mountPath": "/scratch", "subPath": "a"},
    {"name": "dshm", "mountPath": "/dev/shm"},
]
ENVIRONMENT: list[Json] = [
    {"name": "LEVEL", "value": "debug"},
    {"name": "NCCL_DEBUG", "value": "INFO"},
    {"name": "EMPTY"},
    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    {"name": "BYTES", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1024Mi"}}},
    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a", "optional": True}}},
]
# Values that the API server and FlytePropeller read as Kubernetes types.
OF_CONTAINERS: list[Json] = [
    {"ports": [{"containerPort": 9000}, {"containerPort": 9001, "protocol": "UDP", "hostPort": 0}]},
    {"livenessProbe": {"httpGet": {"port": "http", "path": ""}, "initialDelaySeconds": 0}},
    {"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}, "tty": False, "stdin": None},
    {"ports": [{"containerPort": 23456}]},
    {"resources": {"claims": [{"name": "gpu"}]}},
    {"volumeMounts": [{"name": "data", "mountPath": "/d", "readOnly": False, "subPath": ""}]},
    {"unknownField": {"a": 1}},
]
OF_PODS: list[Json] = [
    {"hostPID": False, "shareProcessNamespace": False, "hostIPC": True, "priority": 0},
    {"overhead": {"memory": "1024Mi"}, "dnsPolicy": "Default", "enableServiceLinks": False},
    {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}], "schedulingGates": [{"name": "g"}]},
    {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
    {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpus"}], "hostname": "", "unknownField": 1},
    {"ephemeralContainers": [{"name": "debug", "image": "busybox", "targetContainerName": "main"}]},
]
LABELS: list[dict[str, str]] = [{}, {"team": "vision"}, {"team": "speech", "a.example.com/b": "c"}]
IMAGES = ["trainer:v1", "registry.example.com/team/trainer@sha256:0123", "localhost:5000/a/b:c"]


def resources(dice, names, share):
    """Return requests and limits for the given names, which differ in a tenth of the cases."""
    requests = dice.some(names, share)
    if dice.yes(0.1):
        return {"requests": requests, "limits": dice.some(names, share)}
    both = {"requests": requests, "limits": dict(requests)}
    kinds = dice.pick([["requests"], ["limits"], ["requests", "limits"]])
    return {kind: both[kind] for kind in kinds if requests or dice.yes(0.1)}


def entries(amounts):
    """Return requests and limits in flyteidl's form."""
    return {
        kind: [{"name": name, "value": value} for name, value in values.items()]
        for kind, values in amounts.items()
    }


def labels_and_note(dice, note):
    """Return the metadata of a pod, with this annotation in half of the cases."""
    return {"labels": dice.pick(LABELS), "annotations": dice.pick([{}, {"note": note}])}


NAMESPACE = "p-d"

GPUS, PARTITION, NO_SCHEDULE = ["nvidia.com/gpu"], {"key": "gpu-partition"}, {"effect": "NoSchedule"}
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
    "gpu-unpartitioned-node-selector-requirement": [{**PARTITION, "operator": "NotIn", "values": ["1g.5gb"]}],
    "gpu-unpartitioned-toleration": [{**PARTITION, "operator": "Equal", "value": "whole", **NO_SCHEDULE}],
    "gpu-resource-name": ["amd.com/gpu"],
    "default-pod-security-context": POD_SECURITY,
    "default-security-context": SECURITY,
    "enable-host-networking-pod": [True, False],
    "default-pod-dns-config": DNS,
    "default-pod-template-name": ["gang", "plain", "missing"],
    "add-tolerations-for-extended-resources": [GPUS, ["vpc.amazonaws.com/efa", *GPUS]],
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


def settings(dice):
    """Return a `plugins.k8s` section with no, few or many keys.

    Pod security checks are off, because Flyte's plugin accepts every pod.
    """
    knobs = dice.some(KNOBS, dice.pick([0.0, 0.1, 0.3]))
    ours = dice.pick(OURS) if dice.yes(0.3) else {}
    return {**knobs, "kfpytorch": {**ours, "pod-security": {"mode": "off"}}}


def metadata(dice):
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
    node_id = {"nodeId": node, "executionId": {"project": "p", "domain": "d", "name": execution}}
    about = {
        "taskExecutionId": {"taskId": {**TASK}, "nodeExecutionId": node_id, "retryAttempt": attempt},
        "namespace": NAMESPACE,
        "labels": labels,
        "k8sServiceAccount": dice.pick(["", "default", "runner"]),
    }
    if dice.yes(0.05):
        about["interruptible"] = True
    if dice.yes(0.3):
        evictable = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
        about["annotations"] = dice.pick([{"note": "execution"}, evictable])
    if dice.yes(0.3):
        about["environmentVariables"] = dice.pick([{"LEVEL": "warn"}, {"A": "1", "B": "2"}])
    if dice.yes(0.3):
        about["identity"] = {"executionIdentity": dice.pick(["jane@example.com", "robot"])}
    return about, f"s3://b/metadata/propeller/p-d-{execution}/{node}/data/{attempt}"


def template_container(dice, name):
    """Return a container of a platform's PodTemplate. It has an image because Kubernetes requires one."""
    written = {"name": name, "image": dice.pick(IMAGES)}
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


def pod_template(dice, name):
    """Return one PodTemplate with some of the container names that Flyte recognizes."""
    names = dice.few(["default", "primary", "logs", "trainer"], 3) or ["noop"]
    spec = {"containers": [template_container(dice, container) for container in names]}
    if dice.yes(0.2):
        names = dice.few(["default-init", "primary-init", "init"], 2)
        spec["initContainers"] = [template_container(dice, container) for container in names]
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
        "template": {"metadata": labels_and_note(dice, "template"), "spec": spec},
    }


def pod_templates(dice):
    """Return the PodTemplates of the cluster. A task may name a template that is missing."""
    return [pod_template(dice, name) for name in ("gang", "plain") if dice.yes(0.85)]
