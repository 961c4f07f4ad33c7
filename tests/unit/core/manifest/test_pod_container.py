# ruff: noqa: E501 - a row a case
"""Tests for the pod of a container task, to which the plan must add all settings of the platform."""

from dataclasses import replace

import pytest
from msgspec import structs
from pods import DEFAULT_RESOURCES, FOR_TRAINING, OF_RUN, RUN, SPEC, TRAINER, TRUTHFUL, WORKER, container, pod

from backend_plugin.core.job import ReplicaGroup, Resources

REQUIREMENT = {"key": "spot", "operator": "In", "values": ["true"]}
Y, Z = {"key": "y", "operator": "DoesNotExist"}, {"key": "z", "operator": "Exists"}
TOLERATIONS = [{"key": key, "operator": "Exists"} for key in "abcdef"]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = {"name": "GPU", "value": "1"}


def node_affinity(*terms):
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}}


BY_RESOURCE = {"memory": TOLERATIONS[:1], "cpu": TOLERATIONS[1:2], "x/y": TOLERATIONS[2:3]}
REQUIRING = {"affinity": node_affinity([REQUIREMENT])}
TOLERATING = {"tolerations": [TOLERATIONS[1], TOLERATIONS[0]]}
AS_USER, NAMESERVER = {"runAsUser": 1}, {"nameservers": ["::1"]}
# One row per setting: the settings section, and its changes to the pod spec of an ordinary and of an
# interruptible attempt.
SETTINGS = {
    "tolerations": ({"default-tolerations": TOLERATIONS[:1], "interruptible-tolerations": TOLERATIONS[1:2]}, {"tolerations": TOLERATIONS[:1]}, TOLERATING),
    "resource tolerations": ({"resource-tolerations": BY_RESOURCE}, *[TOLERATING] * 2),
    "node selector": (
        {"default-node-selector": {"a": "1", "b": "1"}, "interruptible-node-selector": {"b": "2"}},
        {"nodeSelector": {"a": "1", "b": "1"}},
        {"nodeSelector": {"a": "1", "b": "2"}},
    ),
    "requirement": ({"interruptible-node-selector-requirement": REQUIREMENT}, {}, REQUIRING),
    "requirement of others": ({"non-interruptible-node-selector-requirement": REQUIREMENT}, REQUIRING, {}),
    "affinity": (
        {"default-affinity": node_affinity([Z], [Y]), "interruptible-node-selector-requirement": REQUIREMENT},
        {"affinity": node_affinity([Z], [Y])},
        {"affinity": node_affinity([Z, REQUIREMENT], [Y, REQUIREMENT])},
    ),
    "scheduler": ({"scheduler-name": "volcano"}, *[{"schedulerName": "volcano"}] * 2),
    "host network": ({"enable-host-networking-pod": True}, *[{"hostNetwork": True}] * 2),
    "no host network": ({"enable-host-networking-pod": False}, {}, {}),
    "security": ({"default-pod-security-context": AS_USER}, *[{"securityContext": AS_USER}] * 2),
    "dns": ({"default-pod-dns-config": NAMESERVER}, *[{"dnsConfig": NAMESERVER}] * 2),
}  # fmt: skip


@pytest.mark.parametrize(("section", "ordinary", "interruptible"), SETTINGS.values(), ids=SETTINGS)
def test_pod_setting_is_applied_for_ordinary_and_interruptible_runs(section, ordinary, interruptible):
    assert pod(container(), section)["spec"] == {**SPEC, **ordinary}
    for run in (replace(RUN, labels={"interruptible": "true"}), replace(RUN, preemptible=True)):
        assert pod(container(), section, run=run)["spec"] == {**SPEC, **interruptible}


def test_container_settings_are_applied():
    section = {
        "image-pull-policy": "Always",
        "default-security-context": {"privileged": False},
        "default-env-vars": {"B": "2", "A": "1"},
        "default-env-from-secrets": ["s"],
        "default-env-from-configmaps": ["c"],
    }
    run = replace(RUN, environment={"Z": "z", "A": "0"}, service_account="sa")
    env = [{"name": "A", "value": "1"}, {"name": "Z", "value": "z"}, {"name": "B", "value": "2"}]
    made = {
        "imagePullPolicy": "Always",
        "securityContext": {"privileged": False},
        "env": [*OF_RUN, *env, *TRUTHFUL],
        "envFrom": [
            {"secretRef": {"name": "s", "optional": True}},
            {"configMapRef": {"name": "c", "optional": True}},
        ],
    }
    assert pod(container(), section, run=run)["spec"] == {
        **SPEC,
        "serviceAccountName": "sa",
        "containers": [{**TRAINER, **made}],
    }


def test_fail_on_error_variable_of_the_task_is_kept():
    (made,) = pod(container(env=[{"key": "FLYTE_FAIL_ON_ERROR", "value": "0"}]))["spec"]["containers"]
    variable = {"name": "FLYTE_FAIL_ON_ERROR", "value": "0"}
    assert made["env"] == [variable, *OF_RUN, *FOR_TRAINING, *TRUTHFUL[1:]]


def training_env(template, group: ReplicaGroup = WORKER, **ours) -> dict[str, str]:
    """Return the variables of the trainer container that other containers of Flyte do not have."""
    (made,) = pod(template, {"kfpytorch": ours}, group=group)["spec"]["containers"]
    known = {each["name"] for each in [*OF_RUN, *TRUTHFUL]}
    return {each["name"]: each["value"] for each in made["env"] if each["name"] not in known}


@pytest.mark.parametrize(
    ("cpu", "processes", "threads"),
    [("8", 1, {"OMP_NUM_THREADS": "8"}), ("500m", 1, {"OMP_NUM_THREADS": "1"}), ("8", 2, {})],
)
def test_single_process_replica_gets_one_thread_per_cpu(cpu, processes, threads):
    template = container(resources={"limits": [{"name": "CPU", "value": cpu}]})
    given = training_env(template, group=structs.replace(WORKER, processes=processes))
    assert given == {"NCCL_DEBUG": "WARN", **threads}


def test_training_environment_is_set_by_the_platform_and_the_task():
    target = container(env=[{"key": "NCCL_DEBUG", "value": "INFO"}])
    env = {"NCCL_DEBUG": "TRACE", "OMP_NUM_THREADS": "", "NCCL_SOCKET_IFNAME": "eth0"}
    ours = {"NCCL_SOCKET_IFNAME": "eth0"}
    assert training_env(container(), **{"training-env": env}) == {"NCCL_DEBUG": "TRACE", **ours}
    assert training_env(target, **{"training-env": env}) == {"NCCL_DEBUG": "INFO", **ours}
    assert training_env(container(), **{"training-env": {"NCCL_DEBUG": ""}}) == {"OMP_NUM_THREADS": "1"}


def claim(**parts: str) -> dict[str, str]:
    return {name.replace("_", "-").replace("gpu", "nvidia.com/gpu"): text for name, text in parts.items()}


TASK_RESOURCES = {
    "defaults": {"cpu": "2", "memory": "200Mi", "ephemeral-storage": "1Gi"},
    "limits": {"cpu": "4", "memory": "8Gi", "gpu": "8", "ephemeral-storage": "10Gi"},
}
PLATFORM = {"kfpytorch": {"task-resources": TASK_RESOURCES}}
# Requests and limits of the task, resources of the role -> requests and limits of the pod.
ONE_CPU = claim(cpu="1", memory="200Mi")
TWO_CPUS = claim(cpu="2", memory="200Mi")
FOUR_CPUS = claim(cpu="4", memory="200Mi")
WITH_STORAGE = claim(cpu="2", memory="200Mi", ephemeral_storage="10Gi", gpu="2")
OF_ROLE = claim(cpu="2", memory="1Gi", gpu="8")
TWO_AND_GPUS = Resources(requests={"cpu": "2", "nvidia.com/gpu": "8"})
RESOURCES = [
    ({}, {}, None, TWO_CPUS, TWO_CPUS),
    ({"CPU": "0.5"}, {}, None, *[claim(cpu="500m", memory="200Mi")] * 2),
    ({}, {"CPU": "3"}, None, *[claim(cpu="3", memory="200Mi")] * 2),
    ({"CPU": "3"}, {"CPU": "1"}, None, ONE_CPU, ONE_CPU),
    ({"CPU": "1"}, {"CPU": "64"}, None, ONE_CPU, FOUR_CPUS),
    ({"CPU": "0"}, {}, None, TWO_CPUS, TWO_CPUS),
    ({"EPHEMERAL_STORAGE": "20Gi", "GPU": "2"}, {}, None, WITH_STORAGE, WITH_STORAGE),
    # The role takes precedence over the task for each resource separately.
    ({"CPU": "1", "MEMORY": "1Gi"}, {"CPU": "4"}, TWO_AND_GPUS, OF_ROLE, OF_ROLE),
    ({}, {}, Resources(requests={"cpu": "0"}, limits={"cpu": "64"}), FOUR_CPUS, FOUR_CPUS),
]


@pytest.mark.parametrize("row", RESOURCES)
def test_resources_of_task_and_role_are_resolved(row):
    requests, limits, role, *expected = row
    resources = {
        part: [{"name": name, "value": text} for name, text in amounts.items()]
        for part, amounts in (("requests", requests), ("limits", limits))
    }
    made = pod(container(resources=resources), PLATFORM, group=structs.replace(WORKER, resources=role))
    found = made["spec"]["containers"][0]["resources"]
    assert [found["requests"], found["limits"]] == expected


@pytest.mark.parametrize(
    "role", [None, Resources(limits={"gpu": "1"}), Resources(limits={"nvidia.com/gpu": "1"})]
)
def test_gpu_resource_has_the_name_of_the_platform(role):
    template = container(resources={"requests": [] if role else [GPU]})
    made = pod(template, {"gpu-resource-name": "amd.com/gpu"}, group=structs.replace(WORKER, resources=role))
    expected = {part: {**amounts, "amd.com/gpu": "1"} for part, amounts in DEFAULT_RESOURCES.items()}
    assert made["spec"]["containers"][0]["resources"] == expected


DEVICE = "k8s.amazonaws.com/accelerator"
SIZE = "k8s.amazonaws.com/gpu-partition-size"
IS_A100 = {"key": DEVICE, "operator": "In", "values": ["a100"]}
FOR_A100 = {"key": DEVICE, "operator": "Equal", "value": "a100", "effect": "NoSchedule"}
WHOLE_A100 = {"device": "a100", "unpartitioned": True}
OF_WHOLE = {
    "gpu-unpartitioned-node-selector-requirement": REQUIREMENT,
    "gpu-unpartitioned-toleration": TOLERATIONS[0],
}
# Accelerator, settings -> node requirements, tolerations.
ACCELERATORS = [
    ({"device": "a100"}, {}, [IS_A100], [FOR_A100]),
    ({"device": "a100", "unpartitioned": False}, {}, [IS_A100], [FOR_A100]),
    (WHOLE_A100, {}, [IS_A100, {"key": SIZE, "operator": "DoesNotExist"}], [FOR_A100]),
    (WHOLE_A100, OF_WHOLE, [IS_A100, REQUIREMENT], [FOR_A100, TOLERATIONS[0]]),
    (
        {"partitionSize": "1g.5gb"},
        {"gpu-partition-size-node-label": "size"},
        [{"key": "size", "operator": "In", "values": ["1g.5gb"]}],
        [{"key": "size", "operator": "Equal", "value": "1g.5gb", "effect": "NoSchedule"}],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("accelerator", "section", "expressions", "tolerations"), ACCELERATORS)
def test_accelerator_selects_nodes_and_adds_tolerations(accelerator, section, expressions, tolerations):
    extended = {"extendedResources": {"gpuAccelerator": accelerator}}
    spec = pod(container(extended, resources={"limits": [GPU]}), section)["spec"]
    assert (spec["affinity"], spec["tolerations"]) == (node_affinity(expressions), tolerations)
    assert pod(container(extended), section)["spec"] == SPEC


def test_extended_resources_get_tolerations():
    section = {"add-tolerations-for-extended-resources": ["nvidia.com/gpu", "x/y"]}
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    for more in ({}, {"default-tolerations": [toleration]}):
        made = pod(container(resources={"limits": [GPU]}), {**section, **more})
        assert made["spec"]["tolerations"] == [toleration]


@pytest.mark.parametrize(("fields", "written"), [({}, "0"), ({"sizeLimit": "2048Mi"}, "2Gi")])
def test_shared_memory_is_mounted_as_a_volume(fields, written):
    memory = {"mountName": "shm", "mountPath": "/dev/shm", **fields}
    assert pod(container({"extendedResources": {"sharedMemory": memory}}))["spec"] == {
        **SPEC,
        "containers": [{**TRAINER, "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": written}}],
    }


def test_execution_without_a_task_sets_no_task_variables():
    run = replace(RUN, task_project="", task_domain="", task_name="", task_version="")
    made = pod(container(), run=run)["spec"]["containers"][0]["env"]
    assert not [each for each in made if each["name"].startswith("FLYTE_INTERNAL_TASK")]
