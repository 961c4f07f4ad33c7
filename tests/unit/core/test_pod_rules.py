# ruff: noqa: E501 - a row a case
"""Errors of the API server for the pods that the operator creates."""

import re
from contextlib import nullcontext

import pytest
from builders import a_run, a_template

from backend_plugin.core.errors import InvalidTask, RequestRejected
from backend_plugin.core.pipeline import plan
from backend_plugin.core.settings import read
from backend_plugin.embedded.admission import admit_pod

CAUSE = re.compile(r"(spec[^\s:]*): ((?:Required|Invalid|Unsupported|Duplicate) value|Forbidden)")


def a_pod(container=None, **spec):
    metadata, containers = (
        {"name": "pod", "namespace": "ns"},
        [{"name": "c", "image": "a:1", **(container or {})}],
    )
    spec = {"containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def refusal(pod) -> tuple[int, str, str]:
    with pytest.raises(RequestRejected) as refused:
        admit_pod(pod)
    causes = CAUSE.findall(refused.value.message)
    return refused.value.code, refused.value.reason, ", ".join(f"{field}: {kind}" for field, kind in causes)


def test_request_may_be_less_than_the_limit_or_have_none():
    stored = admit_pod(limits({"cpu": 1, "memory": "1Gi"}, cpu=2))
    assert stored["spec"]["containers"][0]["resources"]["limits"] == {"cpu": 2}


def a_mount(**second):
    mounts = [{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/y", **second}]
    return a_pod({"volumeMounts": mounts}, volumes=[{"name": "v", "emptyDir": {}}])


def a_port(**fields):
    return a_pod({"ports": [{"containerPort": 1, **fields}]})


def limits(requests=None, **limits):
    return a_pod({"resources": {"limits": limits, **({"requests": requests} if requests else {})}})


AT = "spec.containers[0]"
GPU = "nvidia.com/gpu"
FIELD = {"fieldRef": {"fieldPath": "x"}}
LONG = {"key": "a", "operator": "Is", "effect": "No", "tolerationSeconds": 1}
REFUSED = [
    (a_pod(restartPolicy="Sometimes"), "spec.restartPolicy: Unsupported value"),
    (a_pod(dnsPolicy="Mine"), "spec.dnsPolicy: Unsupported value"),
    (a_pod(terminationGracePeriodSeconds=-1), "spec.terminationGracePeriodSeconds: Invalid value"),
    (a_pod(activeDeadlineSeconds=0), "spec.activeDeadlineSeconds: Invalid value"),
    (a_pod(containers=[]), "spec.containers: Required value"),
    (a_pod({"name": "a.b"}), f"{AT}.name: Invalid value"),
    (a_pod({"name": "../x"}), f"{AT}.name: Invalid value"),
    (a_pod({"name": ""}), f"{AT}.name: Required value"),
    (a_pod(initContainers=[{"name": "c", "image": "b"}]), "spec.initContainers[0].name: Duplicate value"),
    (a_pod({"image": ""}), f"{AT}.image: Required value"),
    (a_pod({"image": " a"}), f"{AT}.image: Invalid value"),
    (a_pod({"imagePullPolicy": "Often"}), f"{AT}.imagePullPolicy: Unsupported value"),
    (a_pod({"restartPolicy": "Always"}), f"{AT}.restartPolicy: Forbidden"),
    (a_pod({"env": [{"name": ""}]}), f"{AT}.env[0].name: Required value"),
    (a_pod({"env": [{"name": "A=B"}]}), f"{AT}.env[0].name: Invalid value"),
    (a_pod({"env": [{"name": "A", "value": "b", "valueFrom": FIELD}]}), f"{AT}.env[0].valueFrom: Invalid value"),
    (a_pod({"env": [{"name": "A", "valueFrom": {}}]}), f"{AT}.env[0].valueFrom: Invalid value"),
    (a_pod({"env": [{"name": "A", "valueFrom": {**FIELD, "secretKeyRef": {"key": "k"}}}]}), f"{AT}.env[0].valueFrom: Invalid value"),
    (a_mount(name="gone"), f"{AT}.volumeMounts[1].name: Invalid value"),
    (a_mount(name="", mountPath=""), f"{AT}.volumeMounts[1].name: Required value, {AT}.volumeMounts[1].mountPath: Required value"),
    (a_mount(mountPath="/x"), f"{AT}.volumeMounts[1].mountPath: Invalid value"),
    (a_mount(subPath="a/../.."), f"{AT}.volumeMounts[1].subPath: Invalid value"),
    (a_pod(volumes=[{"name": ""}]), "spec.volumes[0].name: Required value, spec.volumes[0]: Required value"),
    (a_pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]), "spec.volumes[1].name: Duplicate value, spec.volumes[1].hostPath: Forbidden"),
    (a_pod(volumes=[{"name": "V", "emptyDir": {}}]), "spec.volumes[0].name: Invalid value"),
    (a_pod(volumes=[{"name": "../x", "emptyDir": {}}]), "spec.volumes[0].name: Invalid value"),
    (a_pod({"ports": [{"name": "a", "containerPort": 0}, {"name": "a", "containerPort": 70000}]}), f"{AT}.ports[0].containerPort: Required value, {AT}.ports[1].name: Duplicate value, {AT}.ports[1].containerPort: Invalid value"),
    (a_port(name="-1--"), f"{AT}.ports[0].name: Invalid value"),
    (a_port(name="a-name-that-is-long"), f"{AT}.ports[0].name: Invalid value"),
    (a_port(name="aB"), f"{AT}.ports[0].name: Invalid value"),
    (a_port(protocol="ICMP"), f"{AT}.ports[0].protocol: Unsupported value"),
    (limits({"cpu": 2}, cpu=1), f"{AT}.resources.requests: Invalid value"),
    (limits({GPU: 1}, **{GPU: 2}), f"{AT}.resources.requests: Invalid value"),
    (limits({GPU: 1}), f"{AT}.resources.limits: Required value"),
    (limits(**{GPU: "500m"}), f"{AT}.resources.limits[nvidia.com/gpu]: Invalid value"),
    (limits(cpu="-1"), f"{AT}.resources.limits[cpu]: Invalid value"),
    (limits(gpus=1), f"{AT}.resources.limits[gpus]: Invalid value"),
    (limits(**{"a/b c": 1}), f"{AT}.resources.limits: Invalid value"),
    (a_pod({"readinessProbe": {}}), f"{AT}.readinessProbe: Required value"),
    (a_pod({"livenessProbe": {"exec": {}, "grpc": {"port": 1}}}), f"{AT}.livenessProbe.grpc: Forbidden"),
    (a_pod(tolerations=[{"value": "a"}]), "spec.tolerations[0].operator: Invalid value"),
    (a_pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]), "spec.tolerations[0].operator: Invalid value"),
    (a_pod(tolerations=[LONG]), "spec.tolerations[0].operator: Unsupported value, spec.tolerations[0].effect: Unsupported value, spec.tolerations[0].effect: Invalid value"),
    (a_pod(tolerations=[{"key": "a b", "operator": "Exists"}]), "spec.tolerations[0].key: Invalid value"),
    (a_pod(nodeSelector={"a b": "c d"}), "spec.nodeSelector: Invalid value, spec.nodeSelector: Invalid value"),
    (a_pod(nodeSelector={"a": "b" * 64}), "spec.nodeSelector: Invalid value"),
    (a_pod(nodeSelector={"A_/a": ""}), "spec.nodeSelector: Invalid value"),
    (a_pod(nodeSelector={"/a": ""}), "spec.nodeSelector: Invalid value"),
    (a_pod(nodeSelector={"a/": ""}), "spec.nodeSelector: Invalid value"),
    (a_pod(nodeSelector={"a/b/c": ""}), "spec.nodeSelector: Invalid value"),
    (a_pod(priorityClassName="A"), "spec.priorityClassName: Invalid value"),
    (a_pod(hostname="A"), "spec.hostname: Invalid value"),
]  # fmt: skip


ALIAS = {"ip": "1.1.1.1"}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
STRICT = {"whenUnsatisfiable": "DoNotSchedule"}
SPREADS = [STRICT, SPREAD, SPREAD, {**SPREAD, **STRICT}]
PREFERENCES = [{"weight": 1, "podAffinityTerm": {}}]
AFFINITY = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}},
    "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": PREFERENCES},
}
VOLUMES = [
    {"name": "v", "csi": {}},
    {"name": "w", "projected": {"sources": [{"secret": {"items": [{"key": "k"}]}}]}},
]
# Missing fields and repeated entries are reported before values.
INCOMPLETE = [
    (a_pod({"image": "", "livenessProbe": {"httpGet": {"path": "/"}}}), f"{AT}.livenessProbe.httpGet.port: Required value"),
    (a_pod({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {}}}]}), f"{AT}.env[0].valueFrom.configMapKeyRef.key: Required value"),
    (a_pod({"env": [{"name": "A"}, {"value": "b"}], "ports": [{}]}), f"{AT}.env[1].name: Required value, {AT}.ports[0].containerPort: Required value"),
    (a_pod(hostAliases=[{}, ALIAS, ALIAS]), "spec.hostAliases[0].ip: Required value, spec.hostAliases[2]: Duplicate value"),
    (a_pod(topologySpreadConstraints=SPREADS), "spec.topologySpreadConstraints[0].maxSkew: Required value, spec.topologySpreadConstraints[0].topologyKey: Required value, spec.topologySpreadConstraints[2]: Duplicate value"),
    (a_pod(affinity=AFFINITY), "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value, spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Required value"),
    (a_pod(volumes=VOLUMES), "spec.volumes[0].csi.driver: Required value, spec.volumes[1].projected.sources[0].secret.items[0].path: Required value"),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "message"), [*REFUSED, *INCOMPLETE])
def test_invalid_pod_is_rejected(pod, message):
    assert refusal(pod) == (422, "Invalid", message)


def tolerate(**toleration: str):
    return {"tolerations": [toleration]}


def mount(**fields: str):
    return {"containers": [{"name": "main", "image": "i", "volumeMounts": [fields]}]}


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (tolerate(key="a", operator="Exists", value="b"), ["tolerations[0].operator"]),
        # A newer API server has more operators.
        (tolerate(key="a", operator="Gt", value="1"), []),
        (mount(name="v"), ["containers[0].volumeMounts[0].mountPath"]),
        ({"hostAliases": [ALIAS, ALIAS]}, ["hostAliases[1]"]),
        # A webhook may add the volume.
        (mount(name="v", mountPath="/v"), []),
    ],
)
def test_task_is_rejected_if_the_api_server_would_reject_its_pods(change, fields):
    spec = {"containers": [{"name": "main", "image": "i"}], **change}
    template = a_template({"masterReplicas": {"replicas": 1}}, k8sPod={"podSpec": spec}, container=None)
    with nullcontext() if not fields else pytest.raises(InvalidTask) as refused:
        plan(template, a_run(), read({}))
    found = [each.field for each in refused.value.problems] if refused else []
    assert found == [f"k8sPod.podSpec.{each}" for each in fields]
