"""Tests for the problems of invalid tasks and their field paths."""

import pytest
from builders import reject
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict
from msgspec import structs
from pods import MASTER, WORKER, container, pod, pod_template, refused, rendered, request, unrendered

from backend_plugin.core.job import Placement, Resources
from backend_plugin.core.manifest.pod import build_pod_templates

SPEC = "k8sPod.podSpec"
PRIMARY = f"{SPEC}.containers[0]"
LIMIT = "container.resources.limits[0]"
GPU_LIMIT = "container.resources.limits.nvidia.com/gpu"
MEMORY = "extendedResources.sharedMemory"
NOT_REPLACED = "was not replaced by Flyte"
NO_COPILOT = "requires Flyte's co-pilot, which this backend does not add"
NO_QUANTITY = "is not a quantity"
UNLIKE_REQUEST = "differs from the request, {}; for devices, both must be equal"
NO_PRIMARY = [("config.primary_container_name", '"primary"', "is not the name of a container of the pod")]
NO_CONTAINER = "contains no training container"


def requesting(**amounts: str):
    return container(resources={"limits": [{"name": name, "value": text} for name, text in amounts.items()]})


def render_problems(**primary):
    return rendered({"containers": [{"name": "primary", **primary}]})


def memory(**fields: str):
    whole = {"mountName": "shm", "mountPath": "/dev/shm", **fields}
    return container({"extendedResources": {"sharedMemory": whole}, "metadata": {"podTemplateName": "base"}})


UNEQUAL = {part: [{"name": "GPU", "value": str(len(part))}] for part in ("requests", "limits")}
UNEQUAL_DEVICES = {"requests": {"a.b/c": "3"}, "limits": {"a.b/c": "1"}}
# The task and its expected problems.
PROBLEMS = {
    "sql": (ParseDict({"sql": {"statement": "x"}}, TaskTemplate()), [("target", "sql", NO_CONTAINER)]),
    "no quantity": (requesting(CPU="1x"), [(LIMIT, '"1x"', NO_QUANTITY)]),
    "empty quantity": (requesting(CPU=""), [(LIMIT, '""', NO_QUANTITY)]),
    "negative": (requesting(CPU="-1"), [(LIMIT, '"-1"', "is negative")]),
    "storage": (requesting(STORAGE="1Gi"), [(LIMIT, "4", "is not a resource of containers")]),
    "half a GPU": (requesting(GPU="0.5"), [(GPU_LIMIT, "500m", "is not a whole number of devices")]),
    "GPUs that differ": (container(resources=UNEQUAL), [(GPU_LIMIT, "6", UNLIKE_REQUEST.format(8))]),
    "placeholder": (
        container(args=["{{.input}}", "{{ $RawOutputDataPrefix }}", "{{ mine }}"], command=["{{.Inputs.x}}"]),
        [
            ("container.command[0]", '"{{.Inputs.x}}"', NOT_REPLACED),
            ("container.args[0]", '"{{.input}}"', NOT_REPLACED),
            ("container.args[1]", '"{{ $RawOutputDataPrefix }}"', NOT_REPLACED),
        ],
    ),
    "placeholder in a pod": (
        render_problems(args=["{{.outputPrefix}}"]),
        [(f"{PRIMARY}.args[0]", '"{{.outputPrefix}}"', NOT_REPLACED)],
    ),
    "co-pilot": (container(dataConfig={"enabled": True}), [("container.dataConfig", "{...}", NO_COPILOT)]),
    "no container": (rendered({"containers": []}), NO_PRIMARY),
    "no primary": (rendered({"containers": [{"name": "a"}, {"name": "b"}]}), NO_PRIMARY),
    "nameless": (rendered({"containers": [{"image": "i"}]}), [(f"{PRIMARY}.name", '""', "is empty")]),
    "two of a name": (
        rendered({"containers": [{"name": "primary"}, {"name": "pytorch"}], "volumes": [{"name": "v"}] * 2}),
        [
            (f"{SPEC}.containers", '"pytorch"', "is the name of two containers"),
            (f"{SPEC}.volumes", '"v"', "is the name of two volumes"),
        ],
    ),
    "shapes": (
        render_problems(
            args="x",
            env=[{"name": 3}],
            resources={"limits": {"cpu": "x", "memory": True}, "requests": {"cpu": "-1"}},
            volumeMounts={},
            image=None,
        ),
        [
            (f"{PRIMARY}.args", '"x"', "is not a list"),
            (f"{PRIMARY}.env[0].name", "3", "is not text"),
            (f"{PRIMARY}.resources.limits.cpu", '"x"', NO_QUANTITY),
            (f"{PRIMARY}.resources.limits.memory", "true", NO_QUANTITY),
            (f"{PRIMARY}.resources.requests.cpu", '"-1"', "is negative"),
            (f"{PRIMARY}.volumeMounts", "{}", "is not a list"),
        ],
    ),
    "network": (
        rendered({"containers": [{"name": "primary"}], "hostNetwork": "yes", "affinity": 1}),
        [
            (f"{SPEC}.hostNetwork", '"yes"', "is neither true nor false"),
            (f"{SPEC}.affinity", "1", "is not an object"),
        ],
    ),
    "a sidecar's GPUs": (
        unrendered(
            {"name": "main", "image": "a"},
            {"name": "side", "image": "a", "resources": {"limits": {"gpu": "9"}}},
            {"name": "more", "image": "a", "resources": UNEQUAL_DEVICES},
        ),
        [(f"{SPEC}.containers[2].resources.limits.a.b/c", "1", UNLIKE_REQUEST.format(3))],
    ),
    "mounts": (
        render_problems(volumeMounts=[{"name": name, "mountPath": "/a"} for name in "ab"]),
        [(f"{PRIMARY}.volumeMounts", '"/a"', "is the mount path of two volumes")],
    ),
    "ports": (
        render_problems(
            ports=[
                {"containerPort": 80, "name": "a"},
                {"containerPort": 80, "protocol": "UDP"},
                {"containerPort": 81, "name": "a"},
                {"containerPort": 23456, "name": "b"},
            ]
        ),
        [
            (f"{PRIMARY}.ports", '"a"', "is the name of two ports"),
            (f"{PRIMARY}.ports", "80", "is the number of two ports"),
            (f"{PRIMARY}.ports", "23456", "is the port with which replicas find each other"),
        ],
    ),
    "no memory": (
        memory(mountName="", mountPath="", sizeLimit="x"),
        [
            (f"{MEMORY}.mountName", '""', "is empty"),
            (f"{MEMORY}.mountPath", '""', "is empty"),
            (f"{MEMORY}.sizeLimit", '"x"', NO_QUANTITY),
        ],
    ),
    "memory twice": (
        memory(mountName="v", mountPath="/v"),
        [
            (f"{MEMORY}.mountName", '"v"', "is the name of another volume"),
            (f"{MEMORY}.mountPath", '"/v"', "is the mount path of another volume"),
        ],
    ),
}
BASE = pod_template(
    containers=[{"name": "default", "image": "", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
    volumes=[{"name": "v"}],
)


@pytest.mark.parametrize("name", PROBLEMS)
def test_invalid_task_is_rejected_with_its_problems(name):
    template, problems = PROBLEMS[name]
    assert refused(template, {}, BASE) == problems


def test_lone_surrogate_in_settings_does_not_hide_task_problems():
    section = {"default-env-vars": [{"A": "\ud800"}]}
    assert refused(container(image=""), section) == [("container.image", '""', "is empty")]


def test_gpus_above_the_platform_limit_are_rejected_unlike_other_resources():
    section = {"kfpytorch": {"task-resources": {"limits": {"gpu": 1, "cpu": 1}}}}
    assert refused(requesting(GPU="2", CPU="2"), section) == [
        ("container.resources.limits.nvidia.com/gpu", "2", "is more than this platform allows, 1")
    ]


def test_metadata_that_the_api_server_rejects_is_reported():
    author = {"metadata": {"labels": {"-": "", "ok": ""}, "annotations": {"A.example/Ok": "a b", "": ""}}}
    template = rendered(
        {"containers": [{"name": "primary"}]},
        k8sPod=author,
        metadata={"metadata": {"labels": {"team": "a b"}, "annotations": {"a/b/c": ""}}},
    )
    problems = refused(template)
    assert [(field, value) for field, value, _ in problems] == [
        ("metadata.metadata.labels", '"a b"'),
        ("metadata.metadata.annotations", '"a/b/c"'),
        ("metadata.labels", '"-"'),
        ("metadata.annotations", '""'),
    ]
    assert all(message.startswith("would be rejected by the cluster: ") for _, _, message in problems)


def test_problems_of_a_role_name_the_role():
    place = Placement(pod_template={"spec": {"containers": 3.0}})
    group = structs.replace(MASTER, resources=Resources(requests={"cpu": "x"}), placement=place)
    assert refused(container(), group=group) == [
        ("custom.kfpytorch.master.podTemplate.spec.containers", "3", "is not a list"),
        ("custom.masterReplicas.resources.requests.cpu", '"x"', NO_QUANTITY),
    ]


def test_shared_problem_of_two_roles_is_reported_once():
    assert len(reject(build_pod_templates, request(container(image="")), [MASTER, WORKER])) == 1
    group = structs.replace(WORKER, resources=Resources(limits={"cpu": "-1"}))
    ((field, value, _),) = refused(container(), group=group)
    assert (field, value) == ("custom.workerReplicas.resources.limits.cpu", '"-1"')


def test_unknown_pod_field_in_a_role_template_is_reported():
    spec = {"hostNetwrk": True, "containers": [{"name": "primary", "imag": "x"}]}
    group = structs.replace(WORKER, placement=Placement(pod_template={"spec": spec}))
    assert refused(container(), group=group) == [
        (f"custom.kfpytorch.worker.podTemplate.spec.{name}", "...", "is not a field of a pod")
        for name in ("hostNetwrk", "containers[0].imag")
    ]


def test_role_template_that_adds_a_container_is_rejected():
    side = {"name": "side", "image": "x", "restartPolicy": "Always"}
    pattern = {"name": "primary", "image": "x"}
    spec = {"containers": [pattern, {"name": "logs", "image": "x"}], "initContainers": [side]}
    group = structs.replace(WORKER, placement=Placement(pod_template={"spec": spec}))
    path = "custom.kfpytorch.worker.podTemplate.spec"
    why = "is not a container of the task, and a template of a role adds none"
    assert refused(container(), group=group) == [
        (f"{path}.containers", '"logs"', why),
        (f"{path}.initContainers", '"side"', why),
    ]
    own = {"containers": [{"name": "primary", "image": "x"}, {"name": "logs", "image": "x"}]}
    alike = structs.replace(WORKER, placement=Placement(pod_template={"spec": own}))
    (made,) = build_pod_templates(request(rendered(own)), [alike])
    assert [each["name"] for each in made["spec"]["containers"]] == ["pytorch", "logs"]


def test_problems_of_a_pod_template_name_it():
    base = {"metadata": {"name": "base", "namespace": "p-d"}, "template": {"spec": []}}
    assert refused(container(), {"default-pod-template-name": "base"}, base) == [
        ("podTemplates.p-d.base.template.spec", "[]", "is not an object")
    ]


def test_pod_with_a_copilot_from_propeller_is_accepted():
    template = render_problems()
    template.k8s_pod.data_config.enabled = True
    assert pod(template)["spec"]["containers"][0]["name"] == "pytorch"
    template.k8s_pod.pod_spec["containers"][0]["env"] = []
    assert [problem[0] for problem in refused(template)] == ["k8sPod.dataConfig"]


EIGHT = structs.replace(WORKER, processes=8)
FOUR = {"limits": {"nvidia.com/gpu": "4"}}
LACKING = ("custom.elasticConfig.nprocPerNode", "8", "is more than the 4 GPUs of a node")


@pytest.mark.parametrize(
    ("template", "more"),
    [
        (render_problems(resources=FOUR), {}),
        (render_problems(resources={"limits": {"nvidia.com/gpu": 4}}), {}),
        (rendered({"containers": [{"name": "only", "resources": FOUR}]}, ""), {}),
        (container({"metadata": {"podTemplateName": "base"}}), {"known": FOUR}),
        (requesting(GPU="4"), {"section": {"gpu-resource-name": "amd.com/gpu"}}),
        (requesting(GPU="8"), {"group": Resources(requests={"nvidia.com/gpu": "4"})}),
    ],
)
def test_ranks_without_a_gpu_are_rejected_if_the_pod_requests_gpus(template, more):
    base = pod_template(containers=[{"name": "primary", "image": "x", "resources": more.get("known", {})}])
    group = structs.replace(EIGHT, resources=more.get("group"))
    assert refused(template, more.get("section", {}), base, group=group) == [LACKING]


@pytest.mark.parametrize(
    "template",
    [
        requesting(GPU="8"),
        requesting(GPU="0"),
        requesting(CPU="4"),
        rendered({"containers": [{"name": "side", "resources": FOUR}, {"name": "primary"}]}),
    ],
)
def test_ranks_without_gpus_run_on_cpus(template):
    assert pod(template, group=EIGHT)["spec"]["containers"]
