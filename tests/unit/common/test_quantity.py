import pytest

from kfpytorch_common.quantity import InvalidQuantity, parse

# Printed by k8s.io/apimachinery v0.34.1.
WRITTEN = {
    "0": "0",
    "0.5": "500m",
    "1000m": "1",
    "1500m": "1500m",
    "1024Mi": "1Gi",
    "0.5Gi": "512Mi",
    "0.1Gi": "107374182400m",
    "0.5Ki": "512",
    "1e3": "1e3",
    "1E3": "1E3",
    "1E": "1E",
    "12e2": "1200",
    "1100": "1100",
    "2000000": "2M",
    "007": "007",
    "+2": "+2",
    ".5": "500m",
    "5.": "5.",
    "1.500": "1.500",
    "1000Ei": "9223372036854775807",
    "-1000Ei": "-9223372036854775807",
    "1e-12": "1e-9",
    "1e003": "1e003",
    "2e-0003": "2e-0003",
    "0.5e003": "500",
}


@pytest.mark.parametrize(("text", "written"), WRITTEN.items())
def test_quantity_is_written_like_go_does(text: str, written: str) -> None:
    assert parse(text).text == written


@pytest.mark.parametrize(
    "text", ["", "x", "Gi", ".", "1 Gi", "1gi", "1Kib", "--1", "1e", "1e999", "9" * 61, "\u0661"]
)
def test_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(InvalidQuantity):
        parse(text)


def test_quantities_are_compared_by_value() -> None:
    assert parse("0.5") == parse("500m") < parse("1") < parse("1Ki") < parse("1025")
    assert [bool(parse(text)) for text in ("0", "0Gi", "1n", "-1")] == [False, False, True, True]
    assert [parse(text).is_whole for text in ("2", "2000m", "0.5", "1Gi")] == [True, True, False, True]
