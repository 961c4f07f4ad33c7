"""Node selectors, node affinity, taints and tolerations."""

from backend_plugin.embedded.node_affinity import Taint, read_node_constraints, read_taints

LABELS = {"zone": "a", "size": "8", "name": "x"}


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
    "nothing said": {},
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
