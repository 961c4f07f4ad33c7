"""Tests of NetworkPolicies against the pods of a job: isolated roles, peers and ports."""

from typing import Any

import pytest

from backend_plugin.core.dialects.table import DEFAULT
from backend_plugin.core.plan import Plan
from backend_plugin.doctor import role_pods
from backend_plugin.doctor.checks import network
from backend_plugin.doctor.checks.network import is_match
from backend_plugin.doctor.facts import Facts, PlannedTask, RolePods, Subject
from backend_plugin.doctor.operators.table import get_operator

OURS = {"app.kubernetes.io/managed-by": "flytekitplugins-kfpytorch"}
EGRESS_DNS = {"ports": [{"port": 53}]}


def role(name: str) -> RolePods:
    labels = {**OURS, "training.kubeflow.org/replica-type": name}
    pod = {"metadata": {"name": f"job-{name}-0", "labels": labels}, "spec": {}}
    return RolePods(name=name, count=1, needed=1, pod=pod)


def ids(*policies: dict[str, Any], roles: tuple[str, ...] = ("master", "worker")) -> list[str]:
    manifests = [{"metadata": {"name": "p"}, "spec": {"podSelector": {}, **each}} for each in policies]
    namespace = {"metadata": {"name": "n", "labels": {"team": "a"}}}
    facts = Facts(
        namespace="n",
        objects={Subject.POLICIES: manifests, Subject.NAMESPACE: [namespace], Subject.DNS: [{}]},
        task=PlannedTask(roles=[role(name) for name in roles]),
    )
    return sorted(
        {check.id for check in network.CHECKS if check.id != "dns-not-ready" for _ in check.judge(facts)}
    )


def test_single_replica_job_has_no_network_findings() -> None:
    assert ids({"policyTypes": ["Ingress", "Egress"]}, roles=("master",)) == []


def peers(**selector: Any) -> dict[str, Any]:
    return {"ingress": [{"from": [selector]}]}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"policyTypes": ["Ingress"]}, ["network-ingress"]),
        ({}, ["network-ingress"]),
        ({"ingress": [{}]}, []),
        ({"podSelector": {"matchLabels": {"app": "other"}}, "policyTypes": ["Ingress"]}, []),
        (peers(podSelector={}), []),
        (peers(podSelector={"matchLabels": OURS}), []),
        (peers(podSelector={"matchLabels": {"app": "x"}}), ["network-ingress"]),
        (peers(namespaceSelector={"matchLabels": {"team": "a"}}), []),
        (peers(namespaceSelector={"matchLabels": {"team": "b"}}), ["network-ingress"]),
        (peers(ipBlock={"cidr": "0.0.0.0/0"}), []),
        (peers(ipBlock={"cidr": "10.0.0.0/24"}), ["network-ingress"]),
        ({"ingress": [{"ports": [{"port": 8080}]}]}, ["network-ingress"]),
        ({"ingress": [{"ports": [{"port": 23456}]}]}, ["network-ports"]),
        ({"ingress": [{"ports": [{"port": 1024, "endPort": 65535}]}]}, ["network-ports"]),
        ({"policyTypes": ["Egress"]}, ["network-dns", "network-egress"]),
        ({"policyTypes": ["Egress"], "egress": [EGRESS_DNS]}, ["network-egress"]),
        ({"policyTypes": ["Egress"], "egress": [EGRESS_DNS, {"to": [{"podSelector": {}}]}]}, []),
    ],
)
def test_restrictive_network_policy_is_found(spec: dict[str, Any], found: list[str]) -> None:
    assert ids(spec) == found


def test_traffic_forbidden_by_one_policy_may_be_allowed_by_another() -> None:
    allowed = {"policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]}
    assert ids({"policyTypes": ["Ingress"]}, allowed) == []


@pytest.mark.parametrize(
    ("operator", "values", "labels", "selected"),
    [
        ("In", ["a"], {"k": "a"}, True),
        ("In", ["a"], {}, False),
        ("NotIn", ["a"], {}, True),
        ("NotIn", ["a"], {"k": "a"}, False),
        ("Exists", None, {"k": ""}, True),
        ("DoesNotExist", None, {"k": ""}, False),
        ("Near", ["a"], {"k": "a"}, False),
    ],
)
def test_label_expressions_are_matched_like_kubernetes_does(
    operator: str, values: list[str] | None, labels: dict[str, str], selected: bool
) -> None:
    expression = {"key": "k", "operator": operator, "values": values}
    assert is_match({"matchExpressions": [expression]}, labels) is selected
    assert not is_match(None, labels)


def test_probe_job_has_a_master_and_a_worker_that_waits_for_it() -> None:
    invalid = get_operator(DEFAULT).build_invalid_job("n")
    spec = invalid["spec"]
    assert isinstance(spec, dict)
    job = {**invalid, "spec": {"pytorchReplicaSpecs": {
        "Master": {**spec["pytorchReplicaSpecs"]["Master"], "replicas": 1},
        "Worker": {**spec["pytorchReplicaSpecs"]["Master"], "replicas": 3},
    }}}  # fmt: skip
    master, worker = role_pods.build_role_pods(Plan(dialect=DEFAULT.name, job=job), "mine")
    assert (master.name, master.count, worker.name, worker.count) == ("master", 1, "worker", 3)
    assert [each["name"] for each in worker.pod["spec"]["initContainers"]] == ["init-pytorch"]
    assert worker.pod["spec"]["schedulerName"] == "mine"
    assert "ownerReferences" not in worker.pod["metadata"]
