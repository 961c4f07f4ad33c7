"""Property tests: plan() returns a valid job or problems for any task template."""

import json
import random
import re
from copy import deepcopy

import pytest
from tree_mutations import mutate

from backend_plugin.cli import render_requests
from backend_plugin.cli.json_lines import encode_json
from backend_plugin.core.errors import InvalidSettings, InvalidTask
from kfpytorch_common.quantity import parse

ODD = (
    *(None, True, False, 0, -1, 0.5, 7, 2**31, 2**70, 1e308, float("nan"), float("inf")),
    *("", "x", "\x00", "é", "9" * 5_000, "-1", "1Gi", "RESTART_POLICY_ALWAYS", "a" * 20_000),
    *("{{ .input }}", "pytorch", "3600s", "primary"),
    *([], {}, [[]], [None], {"": {}}, ["x", 1], {"requests": {"cpu": {}}}),
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
RESOURCES = {"requests": [{"name": "CPU", "value": "2"}], "limits": [{"name": "GPU", "value": "8"}]}
POD = {
    "containers": [
        {
            "name": "primary",
            "image": "image:1",
            "args": ["pyflyte-execute"],
            "env": [{"name": "A", "value": "b"}],
            "ports": [{"containerPort": 80}],
            "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "8"}},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        },
        {"name": "side", "image": "side:1"},
    ],
    "initContainers": [{"name": "init", "image": "init:1"}],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"key": "a", "operator": "Exists"}],
}
ELASTIC = {
    "workerReplicas": {"replicas": 2, "resources": RESOURCES},
    "elasticConfig": {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 2, "nprocPerNode": 8},
    "kfpytorch": {
        "version": 1,
        "worker": {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "k", "tolerationSeconds": "5"}],
            "podTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"hostIPC": True}},
        },
        "gang": {"queue": "q", "minMember": 1},
        "trainJob": {"runtime": "torch"},
    },
}
ROLES = {
    "masterReplicas": {"replicas": 1, "resources": RESOURCES, "restartPolicy": "RESTART_POLICY_ON_FAILURE"},
    "workerReplicas": {"common": {"replicas": 3, "image": "worker:1", "resources": RESOURCES}},
    "runPolicy": {"cleanPodPolicy": "CLEANPOD_POLICY_ALL", "backoffLimit": 3},
}
TEMPLATE = {
    "id": {"project": "p", "domain": "d", "name": "t", "version": "v"},
    "type": "pytorch",
    "taskTypeVersion": 1,
    "metadata": {"podTemplateName": "named", "metadata": {"labels": {"a": "b"}}, "timeout": "60s"},
    "securityContext": {"secrets": [{"group": "g", "key": "k"}]},
    "extendedResources": {
        "gpuAccelerator": {"device": "a100"},
        "sharedMemory": {"mountPath": "/dev/shm2", "mountName": "m"},
    },
    "config": {"primary_container_name": "primary"},
}
CONTAINER = {"image": "image:1", "args": ["a"], "env": [{"key": "A", "value": "b"}], "resources": RESOURCES}
REQUEST = {
    "metadata": {
        "taskExecutionId": {"nodeExecutionId": {"nodeId": "n0", "executionId": {"name": "f1"}}},
        "namespace": "p-d",
        "labels": {"interruptible": "true"},
        "environmentVariables": {"E": "1"},
    },
    "output_prefix": "s3://b/0",
    "settings": {"default-labels": {"a": "b"}, "default-tolerations": [{"key": "t"}], "default-cpus": "1"},
    "pod_templates": [
        {
            "metadata": {"name": "named", "namespace": "p-d"},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "containers": [{"name": "default", "env": [{"name": "A", "value": "own"}]}],
                    "nodeSelector": {"pool": "x"},
                    "affinity": {
                        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": []}]}}
                    },
                },
            },
        }
    ],
}
SETTINGS = {
    "default-pod-template-name": "named",
    "interruptible-node-selector-requirement": {"key": "spot", "operator": "In", "values": ["true"]},
    "default-affinity": {"nodeAffinity": {}},
    "resource-tolerations": {"nvidia.com/gpu": [{"key": "gpu", "operator": "Exists"}]},
    "add-tolerations-for-extended-resources": ["nvidia.com/gpu"],
    "default-security-context": {"privileged": False},
    "kfpytorch": {"task-resources": {"limits": {"cpu": "4", "gpu": "8"}, "defaults": {"memory": "1Gi"}}},
}
SEEDS = [
    {**REQUEST, **section, "template": {**TEMPLATE, **target, "custom": custom, "taskTypeVersion": version}}
    for section in ({}, {"settings": SETTINGS})
    for target in ({"container": CONTAINER}, {"k8sPod": {"podSpec": POD}})
    for custom, version in ((ROLES, 1), (ELASTIC, 1), ({"workers": 2}, 0))
]
NAME = re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?")


SOAK = [pytest.mark.soak, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize(
    ("first", "cases"), [(0, 1_000), *(pytest.param(first, 5_000, marks=SOAK) for first in range(100, 120))]
)
def test_mutated_task_becomes_a_job_or_problems(first, cases):
    dice = random.Random(first)
    built = 0
    for number in range(cases):
        request = deepcopy(SEEDS[number % len(SEEDS)])
        for _ in range(dice.randint(0, 4)):
            mutate(request, dice, ODD)
        before = repr(request)
        answer = answered(request)
        assert any(answer.values())
        assert encode_json([*answer.get("manifests", ())]) == encode_json(
            [*answered(request).get("manifests", ())]
        )
        for problem in answer.get("problems", ()):
            assert problem.field
            assert problem.message
            assert problem.remedy
        for job in answer.get("manifests", ()):
            built += 1
            sound(json.loads(encode_json(job)))
        assert repr(request) == before
    assert built > cases / 6


def answered(request):
    try:
        return render_requests.render_manifests(request)
    except (InvalidTask, InvalidSettings) as refusal:
        return {"problems": refusal.problems}


def sound(job) -> None:
    """Assert that training-operator 1.7 and later accept the job and interpret it in the same way."""
    assert NAME.fullmatch(job["metadata"]["name"])
    roles = job["spec"]["pytorchReplicaSpecs"]
    elastic = job["spec"].get("elasticPolicy")
    assert set(roles) == {"Worker"} if elastic else "Master" in roles
    assert roles.get("Master", {"replicas": 1})["replicas"] == 1
    for role in roles.values():
        assert role["replicas"] >= 1
        assert role["restartPolicy"] in ("Never", "OnFailure")
        check_pod(role["template"]["spec"])
    if elastic:
        assert 1 <= elastic["minReplicas"] <= roles["Worker"]["replicas"] <= elastic["maxReplicas"]
        assert int(job["spec"]["nprocPerNode"]) >= 1


def check_pod(spec) -> None:
    """Assert that the API server accepts the containers."""
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    names = [each["name"] for each in containers]
    assert "pytorch" in [each["name"] for each in spec["containers"]]
    assert len(names) == len({*names})
    assert "restartPolicy" not in spec
    for each in containers:
        assert each["image"]
        env = [variable["name"] for variable in each.get("env", ())]
        assert len(env) == len({*env})
        limits, requests = (each.get("resources", {}).get(part, {}) for part in ("limits", "requests"))
        assert all(parse(requests[name]) <= parse(limits[name]) for name in {*limits} & {*requests})
        assert all(requests[name] == limits[name] for name in requests if "/" in name)
