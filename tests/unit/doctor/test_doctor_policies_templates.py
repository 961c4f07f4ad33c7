"""Tests of NetworkPolicies and taints against the pods of a job, and of the content of PodTemplates."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from remedy_cases import COSCHEDULING as SERVED
from remedy_cases import GPU, build_object, deployment, facts, node, operator, role

from backend_plugin.core.settings.loader import read
from backend_plugin.doctor.checks import network, nodes, templates
from backend_plugin.doctor.facts import Facts, PlannedTask, Subject

OURS = {"app.kubernetes.io/managed-by": "flytekitplugins-kfpytorch"}
EGRESS_DNS = {"ports": [{"port": 53, "protocol": "UDP"}]}
TCP_53 = {"ports": [{"port": 53}]}
HIGH = {"port": 45000, "endPort": 65535}
PERMANENT = {"key": "team", "value": "x", "effect": "NoSchedule"}
CHECKS = {check.id: check for check in templates.CHECKS}
YUNIKORN = "yunikorn.apache.org/"
GROUP = {"name": "worker", "minMember": 2, "minResource": {"cpu": "1"}}
SAYS = {"name": "main", "image": "a:1", "env": [{"name": "A"}], "imagePullPolicy": "Always", "resources": {}}
COSCHEDULING = {"spec": {"schedulerName": SERVED}}
SCHEDULER = deployment("s", "some:1", f"--scheduler-name={SERVED}")
OPERATOR = operator(f"--gang-scheduler-name={SERVED}")
OF_YUNIKORN = {"spec": {"schedulerName": "yunikorn"}}
GROUPS = {f"{YUNIKORN}task-groups": json.dumps([GROUP])}
YUNIKORN_SCHEDULER = deployment("s", "yunikorn:1", "--scheduler-name=yunikorn")
BY_BACKEND = {"pod-groups-by": "backend"}
ONE_GROUP = "the pods of all tasks would be in one group"


def ids(*policies, replicas=2, framework="torch"):
    manifests = [build_object("p", spec={"podSelector": {}, **each}) for each in policies]
    namespace = build_object("ns", metadata={"labels": {"team": "a"}})
    objects = {Subject.POLICIES: manifests, Subject.NAMESPACE: [namespace]}
    named = {"name": "pytorch", "ports": [{"name": "rendezvous", "containerPort": 23456}]}
    judged = facts(objects, task=replace(role(replicas, containers=[named]), framework=framework))
    checks = [check for check in network.CHECKS if check.id != "dns-not-ready"]
    return sorted({check.id for check in checks for _ in check.judge(judged)})


def peers(**selector):
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
        ({"ingress": [{"ports": [{"port": 1, "endPort": 45000}, {"port": 45001, "endPort": 65535}]}]}, []),
        ({"ingress": [{"ports": [HIGH]}, {"ports": [{"port": 1, "endPort": 44999}]}]}, []),
        ({"ingress": [{"ports": [HIGH]}, {"ports": [{"port": 1, "endPort": 44998}]}]}, ["network-ports"]),
        ({"ingress": [{"ports": [{"port": "pytorchjob-port"}]}]}, ["network-ports"]),
        ({"ingress": [{"ports": [{"port": "web"}]}]}, ["network-ingress"]),
        ({"ingress": [{"ports": [{"port": "rendezvous"}]}]}, ["network-ports"]),
        ({"policyTypes": ["Egress"]}, ["network-dns", "network-egress"]),
        ({"policyTypes": ["Egress"], "egress": [EGRESS_DNS]}, ["network-egress"]),
        (
            {"policyTypes": ["Egress"], "egress": [{"ports": [{"port": "dns", "protocol": "UDP"}]}]},
            ["network-egress"],
        ),
        ({"policyTypes": ["Egress"], "egress": [{"ports": [{"port": "pytorchjob-port"}]}]}, ["network-dns"]),
        ({"policyTypes": ["Egress"], "egress": [TCP_53]}, ["network-dns", "network-egress"]),
        ({"policyTypes": ["Egress"], "egress": [EGRESS_DNS, {"to": [{"podSelector": {}}]}]}, []),
    ],
)
def test_restrictive_network_policy_is_found(spec: dict[str, Any], found: list[str]) -> None:
    assert ids(spec) == found


def test_job_of_one_replica_needs_no_network_and_an_mpi_job_the_port_of_sshd():
    assert ids({"policyTypes": ["Ingress", "Egress"]}, replicas=1) == []
    assert ids({"policyTypes": ["Ingress"]}, peers(podSelector={})) == []  # Policies are additive.
    for port, found in ((2222, ["network-ports"]), (29500, ["network-ingress"])):
        assert ids({"ingress": [{"ports": [{"port": port}]}]}, framework="mpi") == found


def tainted(name, *taints):
    return {**node(**{GPU: "8"}), "metadata": {"name": name}, "spec": {"taints": taints}}


def find_remedy(*objects):
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


def a_template(name="gang-scheduling-template", **template):
    return build_object(name, "n", template=template)


def run_check(check, template, *deployments, **fields):
    objects = {Subject.TEMPLATES: [template], Subject.DEPLOYMENTS: [*deployments]}
    platform = read(fields.pop("platform", {}))
    return list(CHECKS[check].judge(Facts(namespace="n", settings=platform, objects=objects, **fields)))


@pytest.mark.parametrize(
    ("containers", "is_found"),
    [
        ([SAYS], True),
        ([{**SAYS, "name": "default"}], False),
        ([{**SAYS, "name": "primary"}], False),
        ([SAYS, {"name": "default", "image": "a:1"}], False),
        # The minimum that the API server requires and stores.
        ([{key: value for key, value in SAYS.items() if key != "env"}], False),
    ],
)
def test_template_container_that_applies_to_no_task_is_found(containers, is_found) -> None:
    assert bool(run_check("template-containers", a_template(spec={"containers": containers}))) is is_found


def test_only_templates_that_are_in_use_are_checked():
    wrong = {"containers": [SAYS]}
    for name, fields in (
        ("kai-template", {}),
        ("gone", {"platform": {"default-pod-template-name": "gone"}}),
        ("mine", {"task": PlannedTask(template="mine")}),
    ):
        assert run_check("template-containers", a_template(name, spec=wrong), **fields)
        assert not run_check("template-containers", a_template("anothers", spec=wrong), **fields)


def gang(**options):
    return {"platform": {"kfpytorch": {"gang": options}}}


@pytest.mark.parametrize(
    ("template", "deployments", "fields", "is_found"),
    [
        (COSCHEDULING, [SCHEDULER], {}, True),
        (COSCHEDULING, [SCHEDULER], gang(scheduler="kueue", queue="q"), True),
        (COSCHEDULING, [SCHEDULER, OPERATOR], {}, False),
        (COSCHEDULING, [SCHEDULER], gang(scheduler="coscheduling", **BY_BACKEND), False),
        (COSCHEDULING, [SCHEDULER], gang(scheduler="auto"), False),
        (COSCHEDULING, [SCHEDULER], gang(**{"allowed-schedulers": {"coscheduling": BY_BACKEND}}), False),
        (OF_YUNIKORN, [YUNIKORN_SCHEDULER], {}, True),
        ({**OF_YUNIKORN, "metadata": {"annotations": GROUPS}}, [YUNIKORN_SCHEDULER], {}, False),
        ({"spec": {"schedulerName": "kai-scheduler"}}, [deployment("s", "kai-scheduler:1")], {}, False),
        ({"spec": {"schedulerName": "mine"}}, [deployment("s", "s:1", "--scheduler-name=mine")], {}, False),
    ],
)
def test_scheduler_name_without_a_gang_is_found(template, deployments, fields, is_found) -> None:
    assert bool(run_check("template-gang", a_template(**template), *deployments, **fields)) is is_found


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"annotations": {f"{YUNIKORN}task-group-name": ""}}, "it is empty"),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, ONE_GROUP),
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, ONE_GROUP),
    ],
)
def test_template_annotation_without_effect_on_gangs_is_found_with_the_reason(metadata, why) -> None:
    (violation,) = run_check("template-placeholder", a_template(metadata=metadata))
    assert why in violation.sentence
    (part,) = metadata
    gone = {"template": {"metadata": {part: dict.fromkeys(metadata[part])}}}
    patch = "kubectl patch podtemplate gang-scheduling-template -n n --type=merge -p"
    assert violation.remedy.startswith(f"{patch} '{json.dumps(gone)}'  # ")


def test_template_that_may_form_a_gang_has_no_finding():
    in_group = {**GROUPS, f"{YUNIKORN}task-group-name": "worker"}
    labels = ({}, {"team": ""}, {f"{YUNIKORN}queue": "root.team"})
    for metadata in ({"annotations": in_group}, *({"labels": each} for each in labels)):
        assert not run_check("template-placeholder", a_template(metadata=metadata))
