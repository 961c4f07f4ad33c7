"""Kubernetes quantities."""

from decimal import Decimal

import pytest
from flytekit import Resources
from hypothesis import given
from hypothesis import strategies as st

from flytekitplugins.kfpytorch.problems import InvalidValue
from flytekitplugins.kfpytorch.quantities import parse_quantity, split_resources


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        (2, "2"),
        (0.5, "0.5"),
        (1e-7, "1e-7"),
        ("500m", "0.5"),
        ("100n", "1e-7"),
        ("1.5Gi", "1610612736"),
        ("2k", "2000"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1E", "1e18"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+1", "1"),
    ],
)
def test_quantity_is_parsed_like_kubernetes_does(text: object, amount: str) -> None:
    assert parse_quantity(text) == Decimal(amount)


@pytest.mark.parametrize(
    ("text", "better"),
    [
        *((text, "") for text in ("", "Gi", "1 Gi", "1.2.3", "1e", "0x1", "ten")),
        *((value, "") for value in (True, None, [1], float("nan"))),
        *(("16Gib", "16Gi"), ("16GB", "16G"), ("4kb", "4k"), ("5mb", "5M")),
    ],
)
def test_invalid_quantity_is_rejected_with_a_similar_valid_one(text: object, better: str) -> None:
    with pytest.raises(InvalidValue, match="as Kubernetes writes it") as caught:
        parse_quantity(text)
    remedy = caught.value.problems[0].remedy
    assert not better or remedy.endswith(f"; did you mean '{better}'?")


AMOUNTS = st.none() | st.integers(0, 9)


@given(
    st.builds(
        Resources,
        cpu=AMOUNTS | st.tuples(AMOUNTS, AMOUNTS).filter(lambda pair: None not in pair),
        mem=AMOUNTS,
    )
)
def test_single_value_is_request_and_limit(resources: Resources) -> None:
    cpu = resources.cpu if isinstance(resources.cpu, tuple) else (resources.cpu, resources.cpu)
    assert split_resources(resources) == tuple(Resources(cpu=amount, mem=resources.mem) for amount in cpu)
