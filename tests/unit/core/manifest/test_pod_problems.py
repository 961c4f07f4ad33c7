# ruff: noqa: E501 - a row a case
"""Tests for the problems of invalid tasks, and for the "baseline" Pod Security Standard."""

from dataclasses import replace

import pytest
from builders import reject
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict
from msgspec import structs
from pods import MASTER, RUN, WORKER, container, pod, pod_template, refused, rendered, request, unrendered

from backend_plugin.core.job import Placement, Resources
from backend_plugin.core.manifest.pod import build_pod_templates

SPEC = "k8sPod.podSpec"
PRIMARY = f"{SPEC}.containers[0]"
LIMIT = "container.resources.limits[0]"
GPU_LIMIT = "container.resources.limits.nvidia.com/gpu"
MEMORY = "extendedResources.sharedMemory"
NO_PRIMARY = [("config.primary_container_name", '"primary"')]
EIGHT = structs.replace(WORKER, processes=8)
FOUR = {"limits": {"nvidia.com/gpu": "4"}}


def requesting(**amounts: str):
    return container(resources={"limits": [{"name": name, "value": text} for name, text in amounts.items()]})


def of_primary(**primary):
    return rendered({"containers": [{"name": "primary", **primary}]})


def memory(**fields: str):
    whole = {"mountName": "shm", "mountPath": "/dev/shm", **fields}
    return container({"extendedResources": {"sharedMemory": whole}, "metadata": {"podTemplateName": "base"}})


ARGS = ["{{.input}}", "{{ $RawOutputDataPrefix }}", "{{ mine }}"]
UNEQUAL = {part: [{"name": "GPU", "value": str(len(part))}] for part in ("requests", "limits")}
UNEQUAL_DEVICES = {"requests": {"a.b/c": "3"}, "limits": {"a.b/c": "1"}}
ODD_AMOUNTS = {"limits": {"cpu": "x", "memory": True}, "requests": {"cpu": "-1"}}
TWO_OF_A_NAME = {"containers": [{"name": "primary"}, {"name": "pytorch"}], "volumes": [{"name": "v"}] * 2}
PORTS = [
    {"containerPort": 80, "name": "a"},
    {"containerPort": 80, "protocol": "UDP"},
    {"containerPort": 81, "name": "a"},
    # Replicas find each other at this port.
    {"containerPort": 23456, "name": "b"},
]
# The task and its expected problems.
PROBLEMS = {
    "sql": (ParseDict({"sql": {"statement": "x"}}, TaskTemplate()), [("target", "sql")]),
    "no quantity": (requesting(CPU="1x"), [(LIMIT, '"1x"')]),
    "empty quantity": (requesting(CPU=""), [(LIMIT, '""')]),
    "negative": (requesting(CPU="-1"), [(LIMIT, '"-1"')]),
    "no resource of containers": (requesting(STORAGE="1Gi"), [(LIMIT, "4")]),
    "half a GPU": (requesting(GPU="0.5"), [(GPU_LIMIT, "500m")]),
    "GPUs that differ": (container(resources=UNEQUAL), [(GPU_LIMIT, "6")]),
    "placeholder": (
        container(args=ARGS, command=["{{.Inputs.x}}"]),
        [
            ("container.command[0]", '"{{.Inputs.x}}"'),
            ("container.args[0]", '"{{.input}}"'),
            ("container.args[1]", '"{{ $RawOutputDataPrefix }}"'),
        ],
    ),
    "placeholder in a pod": (of_primary(args=ARGS[:1]), [(f"{PRIMARY}.args[0]", '"{{.input}}"')]),
    "co-pilot": (container(dataConfig={"enabled": True}), [("container.dataConfig", "{...}")]),
    "no container": (rendered({"containers": []}), NO_PRIMARY),
    "no primary": (rendered({"containers": [{"name": "a"}, {"name": "b"}]}), NO_PRIMARY),
    "nameless": (rendered({"containers": [{"image": "i"}]}), [(f"{PRIMARY}.name", '""')]),
    "two of a name": (rendered(TWO_OF_A_NAME), [(f"{SPEC}.containers", '"pytorch"'), (f"{SPEC}.volumes", '"v"')]),
    "shapes": (
        of_primary(args="x", env=[{"name": 3}], resources=ODD_AMOUNTS, volumeMounts={}, image=None),
        [
            (f"{PRIMARY}.args", '"x"'),
            (f"{PRIMARY}.env[0].name", "3"),
            (f"{PRIMARY}.resources.limits.cpu", '"x"'),
            (f"{PRIMARY}.resources.limits.memory", "true"),
            (f"{PRIMARY}.resources.requests.cpu", '"-1"'),
            (f"{PRIMARY}.volumeMounts", "{}"),
        ],
    ),
    "network": (rendered({"containers": [{"name": "primary"}], "hostNetwork": "yes", "affinity": 1}), [(f"{SPEC}.hostNetwork", '"yes"'), (f"{SPEC}.affinity", "1")]),
    "a sidecar's GPUs": (
        unrendered(
            {"name": "main", "image": "a"},
            {"name": "side", "image": "a", "resources": {"limits": {"gpu": "9"}}},
            {"name": "more", "image": "a", "resources": UNEQUAL_DEVICES},
        ),
        [(f"{SPEC}.containers[2].resources.limits.a.b/c", "1")],
    ),
    "two mounts of a path": (of_primary(volumeMounts=[{"name": name, "mountPath": "/a"} for name in "ab"]), [(f"{PRIMARY}.volumeMounts", '"/a"')]),
    "ports": (of_primary(ports=PORTS), [(f"{PRIMARY}.ports", '"a"'), (f"{PRIMARY}.ports", "80"), (f"{PRIMARY}.ports", "23456")]),
    "no memory": (memory(mountName="", mountPath="", sizeLimit="x"), [(f"{MEMORY}.mountName", '""'), (f"{MEMORY}.mountPath", '""'), (f"{MEMORY}.sizeLimit", '"x"')]),
    "memory twice": (memory(mountName="v", mountPath="/v"), [(f"{MEMORY}.mountName", '"v"'), (f"{MEMORY}.mountPath", '"/v"')]),
}  # fmt: skip
BASE = pod_template(
    containers=[{"name": "default", "image": "", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
    volumes=[{"name": "v"}],
)


@pytest.mark.parametrize(("template", "problems"), PROBLEMS.values(), ids=PROBLEMS)
def test_invalid_task_is_rejected_with_its_problems(template, problems):
    assert refused(template, {}, BASE) == problems


def test_lone_surrogate_in_settings_does_not_hide_task_problems():
    section = {"default-env-vars": [{"A": "\ud800"}]}
    assert refused(container(image=""), section) == [("container.image", '""')]


def test_gpus_above_the_platform_limit_are_rejected_unlike_other_resources():
    section = {"kfpytorch": {"task-resources": {"limits": {"gpu": 1, "cpu": 1}}}}
    assert refused(requesting(GPU="2", CPU="2"), section) == [(GPU_LIMIT, "2")]


def test_metadata_that_the_api_server_rejects_is_reported():
    author = {"metadata": {"labels": {"-": "", "ok": ""}, "annotations": {"A.example/Ok": "a b", "": ""}}}
    template = rendered(
        {"containers": [{"name": "primary"}]},
        k8sPod=author,
        metadata={"metadata": {"labels": {"team": "a b"}, "annotations": {"a/b/c": ""}}},
    )
    assert refused(template) == [
        ("metadata.metadata.labels", '"a b"'),
        ("metadata.metadata.annotations", '"a/b/c"'),
        ("metadata.labels", '"-"'),
        ("metadata.annotations", '""'),
    ]


def with_role_template(spec, **fields):
    return structs.replace(WORKER, placement=Placement(pod_template={"spec": spec}), **fields)


def test_problems_of_a_role_name_the_role():
    amounts = Resources(requests={"cpu": "x"})
    group = structs.replace(with_role_template({"containers": 3.0}, resources=amounts), role=MASTER.role)
    assert refused(container(), group=group) == [
        ("custom.kfpytorch.master.podTemplate.spec.containers", "3"),
        ("custom.masterReplicas.resources.requests.cpu", '"x"'),
    ]
    group = structs.replace(WORKER, resources=Resources(limits={"cpu": "-1"}))
    assert refused(container(), group=group) == [("custom.workerReplicas.resources.limits.cpu", '"-1"')]


def test_shared_problem_of_two_roles_is_reported_once():
    assert len(reject(build_pod_templates, request(container(image="")), [MASTER, WORKER])) == 1


def test_unknown_pod_field_in_a_role_template_is_reported():
    group = with_role_template({"hostNetwrk": True, "containers": [{"name": "primary", "imag": "x"}]})
    assert refused(container(), group=group) == [
        (f"custom.kfpytorch.worker.podTemplate.spec.{name}", "...")
        for name in ("hostNetwrk", "containers[0].imag")
    ]


def test_role_template_that_adds_a_container_is_rejected():
    side = {"name": "side", "image": "x", "restartPolicy": "Always"}
    own = {"containers": [{"name": "primary", "image": "x"}, {"name": "logs", "image": "x"}]}
    path = "custom.kfpytorch.worker.podTemplate.spec"
    assert refused(container(), group=with_role_template({**own, "initContainers": [side]})) == [
        (f"{path}.containers", '"logs"'),
        (f"{path}.initContainers", '"side"'),
    ]
    made = pod(rendered(own), group=with_role_template(own))
    assert [each["name"] for each in made["spec"]["containers"]] == ["pytorch", "logs"]


def test_problems_of_a_pod_template_name_it():
    base = {"metadata": {"name": "base", "namespace": "p-d"}, "template": {"spec": []}}
    found = refused(container(), {"default-pod-template-name": "base"}, base)
    assert found == [("podTemplates.p-d.base.template.spec", "[]")]


def test_pod_with_a_copilot_from_propeller_is_accepted():
    template = of_primary()
    template.k8s_pod.data_config.enabled = True
    assert pod(template)["spec"]["containers"][0]["name"] == "pytorch"
    template.k8s_pod.pod_spec["containers"][0]["env"] = []
    assert [field for field, _ in refused(template)] == ["k8sPod.dataConfig"]


@pytest.mark.parametrize(
    ("template", "more"),
    [
        (of_primary(resources=FOUR), {}),
        (of_primary(resources={"limits": {"nvidia.com/gpu": 4}}), {}),
        (rendered({"containers": [{"name": "only", "resources": FOUR}]}, ""), {}),
        (container({"metadata": {"podTemplateName": "base"}}), {"known": FOUR}),
        (requesting(GPU="4"), {"section": {"gpu-resource-name": "amd.com/gpu"}}),
        (requesting(GPU="8"), {"group": Resources(requests={"nvidia.com/gpu": "4"})}),
    ],
)
def test_ranks_without_a_gpu_are_rejected_if_the_pod_requests_gpus(template, more):
    base = pod_template(containers=[{"name": "primary", "image": "x", "resources": more.get("known", {})}])
    group = structs.replace(EIGHT, resources=more.get("group"))
    (problem,) = reject(pod, template, more.get("section", {}), base, group=group)
    assert (problem.field, problem.value) == ("custom.elasticConfig.nprocPerNode", "8")
    assert "4 GPUs" in problem.message


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


SPEC = "k8sPod.podSpec"


def in_container(**values):
    return {"containers": [{"name": "primary", "image": "i", **values}]}


def in_context(**values):
    return in_container(securityContext=values)


def in_pod(**values):
    return {**in_container(), **values}


def in_pod_context(**values):
    return in_pod(securityContext=values)


UNCONFINED_TYPE = {"type": "Unconfined"}
SYSCTL = {"name": "kernel.msgmax", "value": "1"}
ON_HOST, ADDED, OF_SYSTEM = {"hostProcess": True}, {"add": ["CHOWN", "SYS_ADMIN"]}, {"user": "system_u"}
OF_HOST = {"httpGet": {"port": 1, "host": "169.254.169.254"}}
PRIVILEGED = {"name": "a", "image": "i", "securityContext": {"privileged": True}}
# A pod spec, and the path and value of the rejected field.
REFUSED = [
    (in_pod(hostNetwork=True), "hostNetwork", "true"),
    (in_pod(hostPID=True), "hostPID", "true"),
    (in_pod(hostIPC=True), "hostIPC", "true"),
    (in_pod(volumes=[{"name": "root", "hostPath": {"path": "/"}}]), "volumes[0].hostPath.path", '"/"'),
    (in_pod_context(sysctls=[SYSCTL]), "securityContext.sysctls[0].name", '"kernel.msgmax"'),
    (in_pod_context(seccompProfile=UNCONFINED_TYPE), "securityContext.seccompProfile.type", '"Unconfined"'),
    (in_pod_context(windowsOptions=ON_HOST), "securityContext.windowsOptions.hostProcess", "true"),
    (in_pod(initContainers=[PRIVILEGED]), "initContainers[0].securityContext.privileged", "true"),
    (in_pod(serviceAccountName="admin"), "serviceAccountName", '"admin"'),
]
REFUSED += [
    (spec, f"containers[0].{field}", value)
    for spec, field, value in (
        (in_context(privileged=True), "securityContext.privileged", "true"),
        (in_context(capabilities=ADDED), "securityContext.capabilities.add[1]", '"SYS_ADMIN"'),
        (in_context(procMount="Unmasked"), "securityContext.procMount", '"Unmasked"'),
        (in_context(appArmorProfile=UNCONFINED_TYPE), "securityContext.appArmorProfile.type", '"Unconfined"'),
        (in_context(seLinuxOptions={"type": "spc_t"}), "securityContext.seLinuxOptions.type", '"spc_t"'),
        (in_context(seLinuxOptions=OF_SYSTEM), "securityContext.seLinuxOptions.user", '"system_u"'),
        (in_container(ports=[{"containerPort": 1, "hostPort": 22}]), "ports[0].hostPort", "22"),
        (in_container(livenessProbe=OF_HOST), "livenessProbe.httpGet.host", '"169.254.169.254"'),
    )
]
ADMITTED = [
    in_pod(hostNetwork=False, volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}]),
    in_pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}),
    in_pod(securityContext={"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 0}),
    in_context(capabilities={"add": ["CHOWN"], "drop": ["ALL"]}, privileged=False, procMount="Default"),
    in_container(ports=[{"containerPort": 1}], livenessProbe={"httpGet": {"port": 1}}),
    in_pod(serviceAccountName="default"),
]
UNCONFINED = {"container.apparmor.security.beta.kubernetes.io/primary": "unconfined"}


@pytest.mark.parametrize(("spec", "field", "value"), REFUSED, ids=lambda each: str(each)[:60])
def test_pod_field_with_node_privileges_is_rejected(spec, field, value):
    assert refused(rendered(spec)) == [(f"{SPEC}.{field}", value)]
    with_off = {"kfpytorch": {"pod-security": {"mode": "off"}}}
    assert pod(rendered(spec), with_off)
    both = {**spec, "hostPID": True, "hostIPC": True}
    assert len(refused(rendered(both))) == 2 + (field not in ("hostPID", "hostIPC"))


@pytest.mark.parametrize("spec", ADMITTED, ids=lambda each: str(each)[:60])
def test_pod_within_the_baseline_level_is_accepted(spec):
    assert pod(rendered(spec))


def test_service_account_of_the_execution_is_accepted():
    spec, run = in_pod(serviceAccountName="trainer"), replace(RUN, service_account="trainer")
    assert pod(rendered(spec), run=run)
    assert refused(rendered(in_pod(serviceAccountName="default")), run=run) == [
        (f"{SPEC}.serviceAccountName", '"default"')
    ]


def test_annotations_that_disable_confinement_are_rejected():
    task = rendered(in_container(), k8sPod={"metadata": {"annotations": UNCONFINED}})
    (name,) = UNCONFINED
    assert refused(task) == [(f"k8sPod.metadata.annotations[{name}]", '"unconfined"')]


def test_pod_template_of_a_role_is_checked_like_the_task():
    group = structs.replace(WORKER, placement=Placement(pod_template={"spec": {"hostPID": True}}))
    assert refused(rendered(in_container()), group=group) == [
        ("custom.kfpytorch.worker.podTemplate.spec.hostPID", "true")
    ]


def test_privileges_set_by_the_platform_are_accepted():
    platform = {
        "enable-host-networking-pod": True,
        "default-security-context": {"privileged": True},
        "default-pod-template-name": "base",
    }
    volumes = [{"name": "root", "hostPath": {"path": "/data"}}]
    known = [pod_template(volumes=volumes, serviceAccountName="platforms")]
    spec = {**in_context(privileged=True), "hostNetwork": True, "serviceAccountName": "platforms"}
    assert pod(rendered(spec), platform, *known)
    other = {**spec, "volumes": [{"name": "etc", "hostPath": {"path": "/etc"}}]}
    assert refused(rendered(other), platform, *known) == [(f"{SPEC}.volumes[0].hostPath.path", '"/etc"')]


def test_service_accounts_and_namespaces_can_be_allowed():
    spec = in_pod(serviceAccountName="reads-data")
    assert pod(rendered(spec), {"kfpytorch": {"pod-security": {"service-accounts": ["reads-data"]}}})
    by_namespace = {"by-namespace": {RUN.namespace: False}}
    assert pod(rendered(in_pod(hostPID=True)), {"kfpytorch": {"pod-security": by_namespace}})
    elsewhere = {"by-namespace": {"elsewhere": "off"}}
    assert refused(rendered(in_pod(hostPID=True)), {"kfpytorch": {"pod-security": elsewhere}})


def test_warn_mode_accepts_the_pod_with_warnings():
    task, platform = rendered(in_pod(hostPID=True)), {"kfpytorch": {"pod-security": {"mode": "warn"}}}
    assert pod(task, platform)
    _, warnings = build_pod_templates(request(task, platform), [WORKER])
    assert [(each.field, each.value) for each in warnings] == [(f"{SPEC}.hostPID", "true")]
    off = {"kfpytorch": {"pod-security": {"mode": "off"}}}
    assert build_pod_templates(request(task, off), [WORKER])[1] == []
