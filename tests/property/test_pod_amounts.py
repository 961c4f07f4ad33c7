"""Property tests of the effective requests of a pod."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from backend_plugin.core.quantity import parse
from backend_plugin.core.scheduling.requests import Amounts, of_pod, summed, times

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
def test_it_is_written_as_kubernetes_writes_it(pod: dict[str, Any]) -> None:
    for amount in of_pod(pod).values():
        again = parse(amount.text)
        assert again == amount
        # A binary amount without a suitable suffix is a plain number, which is parsed as decimal.
        assert again.text == amount.text or amount.text.isdecimal()
        assert parse(again.text).text == again.text


@given(PODS, st.randoms())
def test_the_order_of_containers_does_not_matter(pod: dict[str, Any], dice: Any) -> None:
    shuffled = dice.sample(pod["containers"], len(pod["containers"]))
    assert of_pod({**pod, "containers": shuffled}) == of_pod(pod)


@given(PODS, INITS)
def test_one_container_more_never_asks_for_less(pod: dict[str, Any], more: dict[str, Any]) -> None:
    asked = of_pod(pod)
    assert at_least(of_pod({**pod, "containers": [*pod["containers"], more]}), asked)
    assert at_least(of_pod({**pod, "initContainers": [*pod["initContainers"], more]}), asked)


@given(PODS, PODS, st.integers(0, 9), st.integers(0, 9))
def test_sums_may_be_taken_in_any_order(one: dict[str, Any], other: dict[str, Any], m: int, n: int) -> None:
    a, b = of_pod(one), of_pod(other)
    assert summed([a, b]) == summed([b, a])
    assert times(m + n, a) == summed([times(m, a), times(n, a)])
