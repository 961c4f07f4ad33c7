import pytest

from kfpytorch_common.labels import is_key, is_subdomain, is_value


@pytest.mark.parametrize(
    "text", ["a", "gpu-pool", "A_b.c", "example.com/pool", "9", "x" * 63, f"{'d' * 253}/a"]
)
def test_valid_label_keys_are_accepted(text: str) -> None:
    assert is_key(text)


@pytest.mark.parametrize(
    "text",
    ["", "a b", "-a", "a-", "/a", "a/", "a/b/c", "Example.com/a", "x" * 64, f"{'d' * 254}/a", "é", "a\n"],
)
def test_invalid_label_keys_are_rejected(text: str) -> None:
    assert not is_key(text)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("", True), ("h100", True), ("A_b.c-d", True), ("x" * 63, True), ("x" * 64, False), ("a b", False),
     ("-a", False), ("a/b", False), ("a\n", False)],
)  # fmt: skip
def test_label_values_are_checked(text: str, is_one: bool) -> None:
    assert is_value(text) is is_one


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("high", True), ("a.b-c.d", True), ("x" * 253, True), ("x" * 254, False), ("", False),
     ("High", False), ("a..b", False), ("a_b", False), ("a-", False), ("a\n", False)],
)  # fmt: skip
def test_object_names_are_checked(text: str, is_one: bool) -> None:
    assert is_subdomain(text) is is_one
