"""Property tests: each value for a part of a pod is either accepted or has a problem."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core import schema_check
from backend_plugin.core.pod_schema import PARTS

KINDS = sorted(line.split()[0] for line in PARTS.splitlines() if not line.startswith(" "))
FIELDS = sorted({word.partition(":")[0] for word in PARTS.split() if ":" in word})
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["1", "1Gi", "-1"])
)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner)
)


@given(st.sampled_from([*KINDS, "{quantity}", "[string]"]), JSON)
def test_value_is_converted_or_has_problems(kind: str, value: Any) -> None:
    written, problems = schema_check.convert_value(value, kind, "x")
    assert (written is None) == bool(problems)


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_converted_value_is_unchanged_by_another_conversion(kind: str, value: Any) -> None:
    written, problems = schema_check.convert_value(value, kind, "x")
    assert problems or schema_check.convert_value(written, kind, "x") == (written, [])
