# ruff: noqa: E501 - one case per line
"""The node that the scheduler selects for a pod, the constraints of a pod, and messages if no node fits."""

import pytest
from kept_objects import container, node, pod, stored

from backend_plugin.embedded.node_affinity import Taint, read_node_constraints, read_taints
from backend_plugin.embedded.scheduling_cycle import (
    GPU_INDICES,
    Binding,
    Unschedulable,
    compute_gpu_slices,
    read_node_info,
    read_pod_info,
    schedule_pods,
)

LABELS = {"zone": "a", "size": "8", "name": "x"}


def placed(pods, nodes, *, bound=()):
    claims, taken = ([read_pod_info(each) for each in some] for some in (pods, bound))
    return list(schedule_pods(claims, taken, [read_node_info(each) for each in nodes]))


def bind(node_name, manifest, **annotations):
    spec = {**manifest["spec"], "nodeName": node_name}
    return {**manifest, "spec": spec, "metadata": {**manifest["metadata"], "annotations": annotations}}


def build_pod(uid, *, name="p", **requests):
    return stored(pod(name, container(**requests)), uid)


def refusal(pods, nodes, *, bound=()):
    (decision,) = placed(pods, nodes, bound=bound)
    assert isinstance(decision, Unschedulable)
    assert decision.reason == "Unschedulable"
    return decision.message


@pytest.mark.parametrize("requests", [{"cpu": "1"}, {}], ids=["free resources", "pod count"])
def test_pods_are_spread_over_the_nodes(requests):
    decisions = placed([build_pod(uid, **requests) for uid in "123"], [node("a"), node("b")])
    assert decisions == [Binding(uid=uid, node=name) for uid, name in zip("123", "aba", strict=True)]


def test_pods_are_scheduled_by_priority_and_then_creation_order():
    priorities = {"low": -1, "first": 0, "second": 0, "high": 1000}
    pods = [stored(pod(uid, container(cpu="3"), priority=each), uid) for uid, each in priorities.items()]
    assert [each.uid for each in placed(pods, [node("a")])] == ["high", "first", "second", "low"]


def test_message_lists_each_shortage_of_each_node():
    small, tainted = node("a", cpu="1", memory="1Gi"), node("b")
    tainted["spec"] = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}
    cordoned = node("c")
    cordoned["spec"] = {"unschedulable": True}
    asked = stored(pod("p", container(cpu="2", memory="2Gi", **{"nvidia.com/gpu": "1"})), "1")
    nodes = [small, tainted, cordoned, node("d", **{"nvidia.com/gpu": "1", "pods": "0"})]
    shortages = "1 Insufficient cpu, 1 Insufficient memory, 1 Insufficient nvidia.com/gpu, 1 Too many pods, 1 node(s) had untolerated taint {gpu: yes}, 1 node(s) were unschedulable."
    preemption = "1 No preemption victims found for incoming pod, 3 Preemption is not helpful for scheduling."
    assert (
        refusal([asked], nodes)
        == f"0/4 nodes are available: {shortages} preemption: 0/4 nodes are available: {preemption}"
    )


def test_preemption_message_distinguishes_full_and_too_small_nodes():
    running = bind("a", build_pod("1", cpu="4"))
    message = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    assert refusal([build_pod("2", cpu="2")], [node("a"), node("b", cpu="1")], bound=[running]) == message


def test_gated_pod_is_not_scheduled():
    asked = stored(pod("p", container(), schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), "1")
    message = "Scheduling is blocked due to non-empty scheduling gates"
    gated = Unschedulable(uid="1", reason="SchedulingGated", message=message)
    assert placed([asked], [node("a")]) == [gated]


def test_gpus_are_assigned_by_index_to_one_pod_each():
    nodes = [node("a", **{"nvidia.com/gpu": "4"})]
    running = bind("a", build_pod("0", **{"nvidia.com/gpu": "1"}), **{GPU_INDICES: "1"})
    pods = [
        build_pod(uid, **{"nvidia.com/gpu": count}) for uid, count in (("1", "2"), ("2", "0"), ("3", "1"))
    ]
    assert placed(pods, nodes, bound=[running]) == [
        Binding(uid=uid, node="a", gpus=gpus) for uid, gpus in (("1", (0, 2)), ("2", ()), ("3", (3,)))
    ]


def test_gpus_of_a_pod_are_divided_among_containers_and_reused_by_init_containers():
    asked = pod(
        "p",
        container("pytorch", **{"nvidia.com/gpu": "2"}),
        container("sidecar"),
        container("probe", limits={"nvidia.com/gpu": "1"}),
        initContainers=[container("warm", **{"nvidia.com/gpu": "1"})],
    )
    asked["metadata"]["annotations"] = {GPU_INDICES: "1,2,5"}
    assert compute_gpu_slices(asked) == {"warm": (1,), "pytorch": (1, 2), "sidecar": (), "probe": (5,)}


def required(*terms):
    selector = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}


def term(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def by_name(name):
    return required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]})


IN_ZONE, OF_SIZE = term("zone", "In", "a")["matchExpressions"], term("size", "In", "9")
PREFERRED = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
ACCEPTED = {
    "nothing required": {},
    "selector": {"nodeSelector": {"zone": "a"}},
    "in": required(term("zone", "In", "a", "b")),
    "not in": required(term("zone", "NotIn", "b")),
    "not in, without the label": required(term("gone", "NotIn", "b")),
    "exists": required(term("zone", "Exists")),
    "does not exist": required(term("gone", "DoesNotExist")),
    "greater": required(term("size", "Gt", "7")),
    "less": required(term("size", "Lt", "9")),
    "one of two terms": required(term("zone", "In", "b"), term("zone", "In", "a")),
    "by its name": by_name("node-1"),
    "preferred only": {"affinity": PREFERRED},
}
REFUSED = {
    "selector": {"nodeSelector": {"zone": "a", "name": "y"}},
    "in": required(term("zone", "In", "b")),
    "in, without the label": required(term("gone", "In", "b")),
    "not in": required(term("zone", "NotIn", "a")),
    "exists": required(term("gone", "Exists")),
    "does not exist": required(term("zone", "DoesNotExist")),
    "greater": required(term("size", "Gt", "8")),
    "greater than no number": required(term("zone", "Gt", "8")),
    "less": required(term("size", "Lt", "8")),
    "less, without the label": required(term("gone", "Lt", "8")),
    "half of a term": required({"matchExpressions": [*IN_ZONE, *OF_SIZE["matchExpressions"]]}),
    "selector and affinity": {"nodeSelector": {"zone": "a"}, **required(OF_SIZE)},
    "no term": required(),
    "an empty term": required({}),
    "by another's name": by_name("node-2"),
    "an unknown operator": required(term("zone", "Like", "a")),
}


def test_node_is_accepted_if_it_satisfies_all_constraints():
    for specs, expected in ((ACCEPTED, True), (REFUSED, False)):
        for name, spec in specs.items():
            assert read_node_constraints(spec).is_match("node-1", LABELS) is expected, name


TAINT = Taint(key="gpu", value="yes", effect="NoSchedule")
TOLERATED = {
    "the same": {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
    "the same, explicitly": {"key": "gpu", "operator": "Equal", "value": "yes"},
    "any value": {"key": "gpu", "operator": "Exists"},
    "everything": {"operator": "Exists"},
}
NOT_TOLERATED = {
    "another value": {"key": "gpu", "value": "no"},
    "another key": {"key": "tpu", "operator": "Exists"},
    "another effect": {"key": "gpu", "operator": "Exists", "effect": "NoExecute"},
    "a value without a key": {"value": "yes"},
}


def test_first_taint_without_a_matching_toleration_is_returned():
    for tolerations, expected in ((TOLERATED, None), (NOT_TOLERATED, TAINT)):
        for name, toleration in tolerations.items():
            constraints = read_node_constraints({"tolerations": [toleration]})
            assert constraints.find_untolerated_taint([TAINT]) == expected, name
    unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    gpu, other = TOLERATED["the same"], {"key": "other", "effect": "NoSchedule"}
    taints = [{"key": "soft", "effect": "PreferNoSchedule"}, gpu, unreachable, other]
    constraints = read_node_constraints({"tolerations": [{"key": "gpu", "operator": "Exists"}]})
    assert constraints.find_untolerated_taint(read_taints({"taints": taints})) == Taint(**unreachable)
    # A node with only a preference is not excluded.
    assert read_node_constraints({}).find_untolerated_taint(read_taints({"taints": taints[:1]})) is None
