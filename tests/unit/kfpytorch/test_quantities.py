"""Kubernetes quantities."""

import pytest

from flytekitplugins.kfpytorch.problems import InvalidValue
from flytekitplugins.kfpytorch.quantities import parse_quantity
from kfpytorch_common.quantity import parse


@pytest.mark.parametrize(
    ("value", "text"), [(2, "2"), (0.5, "500m"), (1e-7, "100n"), (1e20, "100E"), ("1.5Gi", "1536Mi")]
)
def test_number_is_parsed_like_a_text(value: object, text: str) -> None:
    assert parse_quantity(value) == parse(text)


@pytest.mark.parametrize("value", ["1 Gi", "16Gib", True, None, [1], float("nan")])
def test_invalid_quantity_is_rejected(value: object) -> None:
    with pytest.raises(InvalidValue, match="as Kubernetes writes it"):
        parse_quantity(value)
