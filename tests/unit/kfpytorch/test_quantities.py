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
