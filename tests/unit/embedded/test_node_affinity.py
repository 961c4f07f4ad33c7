"""Node selectors, node affinity, taints and tolerations."""

import pytest

from backend_plugin.embedded.node_affinity import Taint, read_node_constraints, read_taints

LABELS = {"zone": "a", "size": "8", "name": "x"}


def required(*terms):
    selector = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}


def term(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


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
    "by its name": required(
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    ),
    "preferred only": {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
    },
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
    "half of a term": required({"matchExpressions": [*term("zone", "In", "a")["matchExpressions"],
                                                     *term("size", "In", "9")["matchExpressions"]]}),
    "selector and affinity": {"nodeSelector": {"zone": "a"}, **required(term("size", "In", "9"))},
    "no term": required(),
    "an empty term": required({}),
    "by another's name": required(
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}
    ),
    "an unknown operator": required(term("zone", "Like", "a")),
}  # fmt: skip


@pytest.mark.parametrize("spec", ACCEPTED.values(), ids=ACCEPTED)
def test_node_that_satisfies_the_constraints_is_accepted(spec):
    assert read_node_constraints(spec).is_match("node-1", LABELS)


@pytest.mark.parametrize("spec", REFUSED.values(), ids=REFUSED)
def test_node_that_violates_the_constraints_is_rejected(spec):
    assert not read_node_constraints(spec).is_match("node-1", LABELS)


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


@pytest.mark.parametrize("toleration", TOLERATED.values(), ids=TOLERATED)
def test_taint_with_a_matching_toleration_is_tolerated(toleration):
    assert read_node_constraints({"tolerations": [toleration]}).find_untolerated_taint([TAINT]) is None


@pytest.mark.parametrize("toleration", NOT_TOLERATED.values(), ids=NOT_TOLERATED)
def test_taint_without_a_matching_toleration_is_not_tolerated(toleration):
    assert read_node_constraints({"tolerations": [toleration]}).find_untolerated_taint([TAINT]) == TAINT


def test_prefer_no_schedule_taint_does_not_exclude_a_node():
    taints = read_taints({"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]})
    assert read_node_constraints({}).find_untolerated_taint(taints) is None


def test_first_untolerated_taint_is_returned():
    taints = read_taints(
        {
            "taints": [
                {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
                {"key": "other", "effect": "NoSchedule"},
            ]
        }
    )
    wishes = read_node_constraints({"tolerations": [{"key": "gpu", "operator": "Exists"}]})
    assert wishes.find_untolerated_taint(taints) == Taint(
        key="node.kubernetes.io/unreachable", effect="NoExecute"
    )
