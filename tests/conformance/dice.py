"""Seeded random choices, and the values from which tasks and platforms are generated."""

import copy
import random
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]


class Dice(random.Random):
    """Random choices that are equal for equal seeds on every machine."""

    def yes(self, share: float) -> bool:
        """Return True with probability `share`."""
        return self.random() < share

    def some(self, choices: Mapping[str, Sequence[Any]], share: float) -> Json:
        """Return a value for some of the names."""
        return {name: self.pick(values) for name, values in choices.items() if self.yes(share)}

    def keep(self, fields: Json, share: float) -> Json:
        """Return some of the fields that are not empty."""
        return {name: value for name, value in fields.items() if value and self.yes(share)}

    def pick(self, values: Sequence[Any]) -> Any:
        """Return a copy of one of the values, which the caller may modify."""
        return copy.deepcopy(self.choice(values))

    def few(self, values: Sequence[Any], most: int) -> list[Any]:
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


def require_pools(*pools: str) -> Json:
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


def resources(dice: Dice, names: Mapping[str, Sequence[str]], share: float) -> Json:
    """Return requests and limits for the given names, which differ in a tenth of the cases."""
    requests = dice.some(names, share)
    if dice.yes(0.1):
        return {"requests": requests, "limits": dice.some(names, share)}
    both = {"requests": requests, "limits": dict(requests)}
    kinds = dice.pick([["requests"], ["limits"], ["requests", "limits"]])
    return {kind: both[kind] for kind in kinds if requests or dice.yes(0.1)}


def entries(amounts: Json) -> Json:
    """Return requests and limits in flyteidl's form."""
    return {
        kind: [{"name": name, "value": value} for name, value in values.items()]
        for kind, values in amounts.items()
    }
