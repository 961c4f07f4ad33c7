"""Property tests of the effective requests of a pod."""

import json
from decimal import Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from backend_plugin.core.job import ReplicaRole
from backend_plugin.core.scheduling.gang import GangRole, GangSpec
from backend_plugin.core.scheduling.pod_requests import (
    Amounts,
    add_amounts,
    compute_pod_requests,
    scale_amounts,
)
from backend_plugin.core.scheduling.schedulers import yunikorn
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


UNITS = {"m": Decimal("0.001"), "Mi": Decimal(2**20), "G": Decimal(10**9)}


def read(container) -> dict[str, Decimal]:
    """Return the requests of a container after the API server has set them from its limits."""
    resources = container["resources"]
    found = {}
    for name, amount in {**resources["limits"], **resources["requests"]}.items():
        unit = next((each for each in UNITS if amount.endswith(each)), "")
        found[name] = Decimal(amount.removesuffix(unit)) * UNITS.get(unit, 1)
    return found


def add(*parts: dict[str, Decimal]) -> dict[str, Decimal]:
    return {name: sum(part.get(name, Decimal(0)) for part in parts) for part in parts for name in part}


def compute_as_yunikorn(pod) -> dict[str, Decimal]:
    """Return the resource of a pod as `GetPodResource` of yunikorn-k8shim 1.8.0 computes it."""
    is_sidecar = [each.get("restartPolicy") == "Always" for each in pod["initContainers"]]
    inits = [read(each) for each in pod["initContainers"]]
    used = add(*map(read, pod["containers"]))
    for init, beside in zip(inits, is_sidecar, strict=True):
        used = add(used, init) if beside else used
    before: dict[str, Decimal] = {}
    for init, beside in zip(inits, is_sidecar, strict=True):
        before = add(before, init) if beside else before
        for name, amount in add(init, before).items():
            used[name] = max(used.get(name, amount), amount)
    overhead = read({"resources": {"limits": {}, "requests": pod["overhead"]}})
    return {name: amount for name, amount in add(used, overhead).items() if amount}


@given(PODS)
def test_yunikorn_placeholder_is_as_large_as_its_pod(pod):
    member = GangRole(
        role=ReplicaRole.WORKER, count=2, min_count=2, request=compute_pod_requests(pod), spec=pod
    )
    marks = yunikorn.ADAPTERS[""].marks(GangSpec(name="j", namespace="n", members=[member]))
    (group,) = json.loads(marks.pod_annotations(member)["yunikorn.apache.org/task-groups"])
    written = {name: Decimal(parse(amount).nano).scaleb(-9) for name, amount in group["minResource"].items()}
    assert written == compute_as_yunikorn(pod)
