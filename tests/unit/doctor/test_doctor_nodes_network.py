"""Tests of NetworkPolicies and taints against the pods of a job."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from remedy_cases import GPU, build_object, facts, node, role

from backend_plugin.core.settings.loader import read
from backend_plugin.doctor.checks import network, nodes
from backend_plugin.doctor.facts import Subject

OURS = {"app.kubernetes.io/managed-by": "flytekitplugins-kfpytorch"}
EGRESS_DNS = {"ports": [{"port": 53, "protocol": "UDP"}]}
TCP_53 = {"ports": [{"port": 53}]}


def ids(*policies: dict[str, Any], replicas: int = 2, framework: str = "torch") -> list[str]:
    manifests = [build_object("p", spec={"podSelector": {}, **each}) for each in policies]
    namespace = build_object("ns", metadata={"labels": {"team": "a"}})
    objects = {Subject.POLICIES: manifests, Subject.NAMESPACE: [namespace]}
    judged = facts(objects, task=replace(role(replicas), framework=framework))
    checks = [check for check in network.CHECKS if check.id != "dns-not-ready"]
    return sorted({check.id for check in checks for _ in check.judge(judged)})


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
        (peers(ipBlock={"cidr": "0.0.0.0/0", "except": ["10.0.0.0/24"]}), ["network-ingress"]),
        (peers(ipBlock={"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}), []),
        ({"ingress": [{"ports": [{"protocol": "UDP"}]}]}, ["network-ingress"]),
        ({"ingress": [{"ports": [{"protocol": "TCP"}]}]}, []),
        ({"ingress": [{"ports": [{"port": 8080}]}]}, ["network-ingress"]),
        ({"ingress": [{"ports": [{"port": 23456}]}]}, ["network-ports"]),
        ({"ingress": [{"ports": [{"port": 1024, "endPort": 65535}]}]}, []),
        ({"ingress": [{"ports": [{"port": 1, "endPort": 45000}, {"port": "web"}]}]}, ["network-ports"]),
        ({"policyTypes": ["Egress"]}, ["network-dns", "network-egress"]),
        ({"policyTypes": ["Egress"], "egress": [EGRESS_DNS]}, ["network-egress"]),
        ({"policyTypes": ["Egress"], "egress": [TCP_53]}, ["network-dns", "network-egress"]),
        ({"policyTypes": ["Egress"], "egress": [EGRESS_DNS, {"to": [{"podSelector": {}}]}]}, []),
    ],
)
def test_restrictive_network_policy_is_found(spec: dict[str, Any], found: list[str]) -> None:
    assert ids(spec) == found


def test_job_of_one_replica_needs_no_network_and_an_mpi_job_the_port_of_sshd() -> None:
    assert ids({"policyTypes": ["Ingress", "Egress"]}, replicas=1) == []
    assert ids({"policyTypes": ["Ingress"]}, peers(podSelector={})) == []  # Policies are additive.
    for port, found in ((2222, ["network-ports"]), (29500, ["network-ingress"])):
        assert ids({"ingress": [{"ports": [{"port": port}]}]}, framework="mpi") == found


PERMANENT = {"key": "team", "value": "x", "effect": "NoSchedule"}


def tainted(name: str, *taints: dict[str, str]) -> dict[str, Any]:
    return {**node(**{GPU: "8"}), "metadata": {"name": name}, "spec": {"taints": taints}}


def find_remedy(*objects: dict[str, Any]) -> str:
    """Return the remedy for a pod that requests a GPU on these nodes."""
    (check,) = (each for each in nodes.CHECKS if each.id == "node-taints")
    (violation,) = check.judge(facts({Subject.NODES: objects}, task=role(requests={GPU: "1"})))
    return violation.remedy


@pytest.mark.parametrize(
    "key", ["node.kubernetes.io/not-ready", "karpenter.sh/disrupted", "x/agent-not-ready"]
)
def test_temporary_taint_is_never_tolerated(key: str) -> None:
    temporary = {"key": key, "effect": "NoSchedule"}
    assert find_remedy(tainted("a", temporary, PERMANENT)).startswith("kubectl describe node a  # ")
    # A node with only permanent taints is preferred.
    remedy = find_remedy(tainted("a", temporary), tainted("b", PERMANENT))
    settings = read(yaml.safe_load(remedy.removeprefix("write "))["plugins"]["k8s"])
    assert [each["key"] for each in settings.default_tolerations] == ["team"]
