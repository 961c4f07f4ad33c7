# ruff: noqa: E501 - a row a case
from typing import Any

import pytest
from flytekit import PodTemplate, Resources, task
from flytekit.configuration import Image, ImageConfig, SerializationSettings
from flytekit.core.resources import ResourceSpec
from kubernetes.client import V1Container, V1PodSpec, V1ResourceRequirements

from flytekitplugins.kfpytorch import Elastic, PyTorch, Worker
from flytekitplugins.kfpytorch.problems import ConfigError

SETTINGS = SerializationSettings(
    version="v", image_config=ImageConfig(Image(name="default", fqn="registry/default", tag="v1"))
)
CPU = Resources(cpu="2")
QUANTITY = "must be a quantity as Kubernetes writes it, such as 2, '500m' or '16Gi'"
TOO_MANY = "nproc_per_node=8: is more than the 4 GPUs of a node, and each rank needs its own; "
TOO_MANY += "write at most 4, or request 8 GPUs"


def train(steps: int = 1) -> int:
    """Train for some steps."""
    return steps


def define(config: Any, **arguments: Any) -> Any:
    return task(train, task_config=config, **arguments)


def pod(spec: object) -> PodTemplate:
    return PodTemplate(pod_spec=spec)


def container(name: str = "primary", **resources: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "resources": resources}


def refusal(config: Any, **arguments: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        define(config, **arguments)
    return caught.value.problems


MODEL = V1Container(name="primary", resources=V1ResourceRequirements(limits={"nvidia.com/gpu": "4"}))
FOUR_GPUS = pod({"containers": [container(limits={"nvidia.com/gpu": "4"})]})
WITH_GPU_SIDECAR = {"containers": [container(), container("b", limits={"nvidia.com/gpu": "1"})]}


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({"requests": Resources(mem="16Gib"), "limits": Resources(gpu="0.5")}, (f"requests.mem='16Gib': {QUANTITY}", "limits.gpu='0.5': must be a whole number of devices")),
        # flytekit replaces the resources of a pod template by those of the task.
        ({"requests": Resources(mem="16Gib"), "pod_template": pod(V1PodSpec(containers=[MODEL]))}, (f"requests.mem='16Gib': {QUANTITY}",)),
        ({"resources": Resources(cpu=("1", "two"))}, (f"resources.cpu='two': {QUANTITY}",)),
        ({"requests": Resources(cpu=("1", "2"))}, ("requests.cpu=('1', '2'): must be one value; a request with its limit goes into resources=",)),
        ({"environment": {"A": 1, "B": ""}}, ("environment['A']=1: must be text",)),
        ({"pod_template": {"spec": {}}}, ("pod_template={'spec': {}}: must be a PodTemplate(...)",)),
        ({"requests": Resources(gpu="4")}, (TOO_MANY,)),
        ({"requests": Resources(gpu="8"), "limits": Resources(gpu="4")}, (TOO_MANY,)),
        ({"resources": Resources(gpu=4)}, (TOO_MANY,)),
        ({"pod_template": pod(V1PodSpec(containers=[MODEL]))}, (TOO_MANY,)),
        ({"pod_template": pod({"containers": [container(requests={"amd.com/gpu": "4"})]})}, (TOO_MANY,)),
    ],
    ids=str,
)  # fmt: skip
def test_task_that_cannot_run_is_rejected_at_its_definition(arguments, problems) -> None:
    assert refusal(Elastic(nnodes=2, nproc_per_node=8), **arguments) == problems


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        (Elastic(nproc_per_node=8), {}),
        (Elastic(nproc_per_node=8), {"requests": Resources(gpu="0")}),
        (Elastic(nproc_per_node=8), {"requests": Resources(gpu="8")}),
        (Elastic(nproc_per_node="gpu"), {"requests": Resources(gpu="4")}),
        # Flyte lowers a request to its limit.
        (Elastic(), {"requests": Resources(cpu="2"), "limits": Resources(cpu="1")}),
        (PyTorch(worker=Worker(replicas=7)), {"requests": Resources(gpu="1")}),
        # flytekit ignores the resources of a pod template if the task has resources.
        (Elastic(nproc_per_node=8), {"requests": CPU, "pod_template": FOUR_GPUS}),
        # The ranks cannot use the devices of a sidecar.
        (Elastic(nproc_per_node=8, increase_shared_mem=False), {"pod_template": pod(WITH_GPU_SIDECAR)}),
    ],
    ids=str,
)
def test_task_that_can_run_is_accepted(config: Any, arguments: dict[str, Any]) -> None:
    assert define(config, **arguments).task_config is config


def test_all_problems_of_a_task_are_in_one_message() -> None:
    config = PyTorch()
    config.worker.num_retries = -1
    containers = [V1Container(name="primary"), V1Container(name="b")]
    two = pod(V1PodSpec(containers=containers, volumes=[{"name": "shm"}]))
    problems = refusal(config, requests=Resources(cpu="x", mem="y"), pod_template=two)
    fields = [problem.partition("=")[0] for problem in problems]
    assert fields[:4] == ["worker.num_retries", "worker.replicas", "requests.cpu", "requests.mem"]
    assert len(fields) == 6


@pytest.mark.parametrize(
    ("word", "arguments", "count"),
    [
        ("gpu", {"requests": Resources(cpu="16", gpu="4")}, 4),
        ("auto", {"requests": Resources(cpu="16", gpu="4")}, 4),
        ("auto", {"requests": Resources(cpu="3500m")}, 3),
        ("auto", {"requests": Resources(cpu="3", gpu="0")}, 3),
        ("cpu", {"requests": Resources(cpu="16", gpu="4")}, 16),
        ("cpu", {"requests": Resources(cpu="2"), "limits": Resources(cpu="4")}, 4),
        ("cpu", {"requests": Resources(cpu="500m")}, 1),
        ("gpu", {"pod_template": FOUR_GPUS}, 4),
    ],
    ids=str,
)
def test_nproc_per_node_keyword_is_encoded_as_the_granted_amount(word, arguments, count) -> None:
    made = define(Elastic(nnodes=2, nproc_per_node=word), **arguments)
    assert made.get_custom(SETTINGS)["elasticConfig"]["nprocPerNode"] == count


@pytest.mark.parametrize(
    ("word", "arguments"),
    [
        ("gpu", {"requests": CPU}),
        ("gpu", {"pod_template": pod({"containers": [container(limits={"nvidia.com/gpu": "0.5"})]})}),
        ("cpu", {}),
        ("auto", {}),
    ],
)
def test_nproc_per_node_keyword_without_a_known_amount_is_rejected_for_several_nodes(word, arguments) -> None:
    made = define(Elastic(nnodes="1", nproc_per_node=word), **arguments)
    with pytest.raises(ConfigError, match=f"nproc_per_node='{word}': the task does not request the devices"):
        made.get_custom(SETTINGS)
    assert define(Elastic(nnodes=1, nproc_per_node=word)).get_custom(SETTINGS) is None


def test_unreadable_platform_resources_count_as_none() -> None:
    made = define(Elastic(nnodes=2, nproc_per_node="auto"))
    made._resources = ResourceSpec(requests=Resources(gpu="?", cpu="2"), limits=Resources())
    assert made.get_custom(SETTINGS)["elasticConfig"]["nprocPerNode"] == 2


def test_invalid_quantity_does_not_hide_processes_without_a_gpu() -> None:
    for arguments, fields in (
        ({"requests": Resources(cpu="1x", gpu="2")}, ["requests.cpu", "nproc_per_node"]),
        ({"limits": Resources(gpu="two")}, ["limits.gpu"]),
        ({"requests": {"gpu": "2"}}, ["requests"]),
    ):
        problems = refusal(Elastic(nproc_per_node=4), **arguments)
        assert [problem.partition("=")[0] for problem in problems] == fields
