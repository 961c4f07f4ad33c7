"""Tests for values of `with_overrides`, which are merged into a task that does not contain them."""

import pytest
from flyteidl.core.tasks_pb2 import TaskTemplate
from flyteidl.core.workflow_pb2 import TaskNodeOverrides
from google.protobuf.json_format import MessageToDict, ParseDict

from backend_plugin.core.manifest.pod_overrides import with_overrides

RENDERED = {"name": "FLYTE_INTERNAL_EXECUTION_ID", "value": "e"}
REQUESTS = [{"name": key, "value": value} for key, value in (("CPU", "4"), ("GPU", "0"), ("STORAGE", "1"))]
ASKED = {"requests": REQUESTS}
OTHER = {
    "podSpec": {"containers": [{"name": "other", "image": "o"}]},
    "primaryContainerName": "other",
    "metadata": {"labels": {"a": "override"}, "annotations": {"b": "override"}},
}
PRIMARY = {"primary_container_name": "main"}


def container(image: str, **resources):
    return {"container": {"image": image, "resources": resources}}


def pod(*containers, **rest):
    return {"k8sPod": {"podSpec": {"containers": list(containers), **rest}}, "config": PRIMARY}


LIMITS = [{"name": "CPU", "value": "8"}]
GPUS = {"name": "GPU", "value": "8"}
INIT = {"name": "init", "image": "a"}
MEMORY = {"sharedMemory": {"mountName": "m"}}
PARTITION = {"gpuAccelerator": {"device": "b", "partitionSize": "p"}}
MAIN, SIDE = {"name": "main", "image": "a"}, {"name": "side", "image": "a"}
OF_MAIN, FOUR_CPUS = {"limits": {"cpu": "8"}}, {"requests": {"cpu": "4"}}
IN_PODS = pod({**MAIN, "env": [RENDERED]})
IN_OTHER = pod({"name": "other", "image": "a", "env": [RENDERED]})
# The task, the overrides of its Flyte node, and the merged task.
CASES = {
    "a container": (
        container("a", requests=[{"name": "CPU", "value": "1"}, GPUS], limits=LIMITS),
        {"resources": {"requests": REQUESTS[:2]}, "containerImage": "b"},
        container("b", requests=[GPUS, {"name": "CPU", "value": "4"}], limits=LIMITS),
    ),
    "a pod": (
        pod({**MAIN, "resources": OF_MAIN}, SIDE, "no container", initContainers=[INIT]),
        {"resources": ASKED, "containerImage": "b"},
        pod(
            {"name": "main", "image": "b", "resources": {**OF_MAIN, **FOUR_CPUS}},
            *(SIDE, "no container"),
            initContainers=[{**INIT, "resources": FOUR_CPUS}],
        ),
    ),
    "an image alone": (pod(MAIN), {"containerImage": "b"}, pod({"name": "main", "image": "b"})),
    "a pod that propeller has rendered": (IN_PODS, {"resources": ASKED, "containerImage": "b"}, IN_PODS),
    "extended resources": (
        {"container": {"image": "a"}, "extendedResources": {"gpuAccelerator": {"device": "a"}, **MEMORY}},
        {"extendedResources": PARTITION},
        {"container": {"image": "a"}, "extendedResources": {**PARTITION, **MEMORY}},
    ),
    "another pod": (
        {"k8sPod": {"podSpec": {}, "metadata": {"labels": {"a": "own", "c": "own"}}}, "config": PRIMARY},
        {"podTemplate": OTHER, "containerImage": "b"},
        {
            "k8sPod": {
                "podSpec": {"containers": [{"name": "other", "image": "b"}]},
                "metadata": {"labels": {"a": "override", "c": "own"}, "annotations": {"b": "override"}},
            },
            "config": {"primary_container_name": "other"},
        },
    ),
    "another pod that propeller has rendered": (
        IN_OTHER,
        {"podTemplate": {**OTHER, "metadata": {}}},
        {**IN_OTHER, "config": {"primary_container_name": "other"}},
    ),
    "no target": ({"sql": {}}, {"containerImage": "b"}, {"sql": {}}),
}


@pytest.mark.parametrize(("task", "overrides", "meant"), CASES.values(), ids=CASES)
def test_overrides_of_a_flyte_node_are_merged_into_its_task(task, overrides, meant):
    template = ParseDict(task, TaskTemplate())
    made = with_overrides(template, ParseDict(overrides, TaskNodeOverrides()))
    if "k8sPod" in meant:
        made.k8s_pod.ClearField("primary_container_name")
    assert made == ParseDict(meant, TaskTemplate()), MessageToDict(made)
    assert template == ParseDict(task, TaskTemplate())


def test_flyte_node_without_overrides_leaves_its_task_unchanged():
    template = TaskTemplate()
    assert with_overrides(template, TaskNodeOverrides()) is template
