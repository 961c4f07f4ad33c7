from collections.abc import Callable

import pytest

from kfpytorch_common.labels import is_key, is_subdomain, is_value


@pytest.mark.parametrize(
    ("check", "valid", "invalid"),
    [
        (
            is_key,
            ["a", "gpu-pool", "A_b.c", "example.com/pool", "9", "x" * 63, f"{'d' * 253}/a"],
            [
                *("", "a b", "-a", "a-", "/a", "a/", "a/b/c", "é", "a\n"),
                "Example.com/a",
                "x" * 64,
                f"{'d' * 254}/a",
            ],
        ),
        (is_value, ["", "h100", "A_b.c-d", "x" * 63], ["x" * 64, "a b", "-a", "a/b", "a\n"]),
        (is_subdomain, ["high", "a.b-c.d", "x" * 253], ["x" * 254, "", "High", "a..b", "a_b", "a-", "a\n"]),
    ],
)
def test_label_keys_label_values_and_object_names_are_checked(
    check: Callable[[str], bool], valid: list[str], invalid: list[str]
) -> None:
    assert [text for text in (*valid, *invalid) if check(text)] == valid
