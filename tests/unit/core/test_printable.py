"""Tests for the escapes of unsafe characters."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from backend_plugin.core import printable
from backend_plugin.core.judging.verdict import Phase, Verdict


def test_terminal_control_characters_are_escaped():
    expected = {
        "\x1b[2Jgone": r"\x1b[2Jgone",
        "a\x00b\x07c\x08d\x7fe": r"a\x00b\x07c\x08d\x7fe",
        "\x9b31m \x85": r"\x9b31m \x85",
        "admin\u202etxt.exe\u202c": r"admin\u202etxt.exe\u202c",
        "\u2066a\u2069 \u200e\u200f\u061c": r"\u2066a\u2069 \u200e\u200f\u061c",
        "one\u2028two\u2029three": r"one\u2028two\u2029three",
        "\ud800": r"\ud800",
        "\ufeffx": r"\ufeffx",
        "10%\r100%": r"10%\r100%",
        "one\r\ntwo\x1b": "one\ntwo\\x1b",
        "tab\tand\nnewline": "tab\tand\nnewline",
        "Grüße, 世界, שלום, 👩‍👧": "Grüße, 世界, שלום, 👩‍👧",
        "": "",
    }
    assert {text: printable.escape(text) for text in expected} == expected


@settings(deadline=None)
@given(st.text())
def test_escaped_text_is_encodable_and_stable(text):
    escaped = printable.escape(text)
    escaped.encode()
    assert printable.escape(escaped) == escaped


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_json_has_the_same_value(text):
    document = printable.escape_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(document) == {"a": text}
    assert printable.escape(document) == document


def test_verdict_contains_no_unsafe_characters():
    phase = Verdict(phase=Phase.FAILED, reason="a\x9b", message="\x1b]0;title\x07 \u202e")
    assert (phase.reason, phase.message) == (r"a\x9b", r"\x1b]0;title\x07 \u202e")
