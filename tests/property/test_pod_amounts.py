"""Property tests of the effective requests of a pod."""

from hypothesis import example, given
from hypothesis import strategies as st

from backend_plugin.core.scheduling.pod_requests import (
    Amounts,
    add_amounts,
    compute_pod_requests,
    scale_amounts,
)
from kfpytorch_common.quantity import parse

AMOUNTS = st.one_of(
    st.integers(0, 64).map(str),
    st.integers(1, 9_999).map("{}m".format),
    st.integers(1, 2_000).map("{}Mi".format),
    st.integers(1, 90).map("{}G".format),
)
RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), AMOUNTS)
CONTAINERS = st.fixed_dictionaries(
    {"resources": st.fixed_dictionaries({"requests": RESOURCES, "limits": RESOURCES})}
)
INITS = st.tuples(CONTAINERS, st.booleans()).map(
    lambda made: {**made[0], **({"restartPolicy": "Always"} if made[1] else {})}
)
PODS = st.fixed_dictionaries(
    {
        "containers": st.lists(CONTAINERS, min_size=1, max_size=3),
        "initContainers": st.lists(INITS, max_size=3),
        "overhead": RESOURCES,
    }
)


def at_least(one: Amounts, other: Amounts) -> bool:
    return all(name in one and one[name] >= amount for name, amount in other.items())


# The sum of 125 MiB and 1 GB is not a whole number of KiB.
NO_SUFFIX = {"containers": [{"resources": {"limits": {"memory": "125Mi"}}}], "overhead": {"memory": "1G"}}


@given(PODS)
@example(NO_SUFFIX)
def test_pod_request_is_formatted_as_a_canonical_quantity(pod):
    for amount in compute_pod_requests(pod).values():
        again = parse(amount.text)
        assert again == amount
        # A binary amount without a suitable suffix is a plain number, which is parsed as decimal.
        assert again.text == amount.text or amount.text.isdecimal()
        assert parse(again.text).text == again.text


@given(PODS, st.randoms())
def test_container_order_does_not_change_pod_requests(pod, dice):
    shuffled = dice.sample(pod["containers"], len(pod["containers"]))
    assert compute_pod_requests({**pod, "containers": shuffled}) == compute_pod_requests(pod)


@given(PODS, INITS)
def test_additional_container_never_reduces_pod_requests(pod, more):
    asked = compute_pod_requests(pod)
    assert at_least(compute_pod_requests({**pod, "containers": [*pod["containers"], more]}), asked)
    assert at_least(compute_pod_requests({**pod, "initContainers": [*pod["initContainers"], more]}), asked)


@given(PODS, PODS, st.integers(0, 9), st.integers(0, 9))
def test_sums_and_multiples_of_requests_are_commutative_and_distributive(one, other, m, n):
    a, b = compute_pod_requests(one), compute_pod_requests(other)
    assert add_amounts([a, b]) == add_amounts([b, a])
    assert scale_amounts(m + n, a) == add_amounts([scale_amounts(m, a), scale_amounts(n, a)])
