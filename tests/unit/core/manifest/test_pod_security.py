"""Tests for the pod fields that authors may set, by the "baseline" Pod Security Standard."""

from dataclasses import replace

import pytest
from msgspec import structs
from pods import RUN, WORKER, pod, pod_template, refused, rendered, request

from backend_plugin.core.job import Placement
from backend_plugin.core.manifest.pod import find_warnings

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
    warned = find_warnings(request(task, platform), [WORKER])
    assert [(each.field, each.value) for each in warned] == [(f"{SPEC}.hostPID", "true")]
    assert [*find_warnings(request(task), [WORKER])] == []
    broken = rendered({"containers": [{"name": "primary"}], "hostPID": "yes"})
    assert [*find_warnings(request(broken, platform), [WORKER])] == []
