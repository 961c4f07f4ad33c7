"""Parsers of values that the settings of the platform and of the server share."""

from typing import Any

import pytest

from backend_plugin.core.settings import value_parsers as parsers
from backend_plugin.core.settings.engine import InvalidSettingValue, Parser

COUNT = parsers.build_count_parser(1, 9)
CHOICE = parsers.build_choice_parser("a", "b")


@pytest.mark.parametrize(
    ("parser", "value", "expected"),
    [
        (parsers.anything, [1], [1]),
        (parsers.boolean, True, True),
        (parsers.boolean, "False", False),
        (COUNT, "9", 9),
        (CHOICE, "B", "b"),
        (parsers.names, "a, b,", ("a", "b")),
        (parsers.names, ["a", 1], ("a", "1")),
        (parsers.text_map, "a=b,c=", {"a": "b", "c": ""}),
        (parsers.text_map, ["a=b"], {"a": "b"}),
        (parsers.text_map, [{"A": 1}, {"b": True}], {"A": "1", "b": "true"}),
        (parsers.message_size, "64Ki", 65_536),
    ],
)
def test_valid_value_is_parsed(parser: Parser, value: Any, expected: Any) -> None:
    assert parser(value) == expected


@pytest.mark.parametrize(
    ("parser", "value"),
    [
        (parsers.boolean, "yes"),
        (COUNT, 0),
        (COUNT, 10),
        (COUNT, "²"),
        (CHOICE, "c"),
        (parsers.names, 3),
        (parsers.text_map, "a"),
        (parsers.text_map, ["=b"]),
        (parsers.text_map, 3),
        (parsers.message_size, "63Ki"),
        (parsers.message_size, "2Gi"),
    ],
)
def test_invalid_value_is_rejected(parser: Parser, value: Any) -> None:
    with pytest.raises(InvalidSettingValue):
        parser(value)
