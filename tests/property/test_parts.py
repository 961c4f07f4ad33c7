"""Property tests: each value for a part of a pod is either accepted or has a problem.

Quantities and structs, which pods contain, are converted without loss.
"""

from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core import schema_check
from backend_plugin.core.pod_schema import PARTS
from backend_plugin.core.protojson import decode_struct
from kfpytorch_common.quantity import InvalidQuantity, parse

KINDS = sorted(line.split()[0] for line in PARTS.splitlines() if not line.startswith(" "))
FIELDS = sorted({word.partition(":")[0] for word in PARTS.split() if ":" in word})
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["1", "1Gi", "-1"])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner)
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-(2**53), 2**53) | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
)


@given(st.sampled_from([*KINDS, "{quantity}", "[string]"]), JSON)
def test_value_is_converted_or_has_problems(kind, value):
    written, problems = schema_check.convert_value(value, kind, "x")
    assert (written is None) == bool(problems)


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_converted_value_is_unchanged_by_another_conversion(kind, value):
    written, problems = schema_check.convert_value(value, kind, "x")
    assert problems or schema_check.convert_value(written, kind, "x") == (written, [])


@given(st.text(alphabet="0123456789.+-eEnumkMGTPi", max_size=8))
def test_formatted_quantity_is_parsed_to_the_same_value(text):
    try:
        quantity = parse(text)
    except InvalidQuantity:
        return
    assert parse(quantity.text) == quantity
    assert parse(quantity.text).text == quantity.text


@given(st.dictionaries(st.text(), PLAIN, max_size=4))
def test_struct_is_decoded_to_the_values_from_which_it_was_built(fields):
    struct = Struct()
    struct.update(fields)
    assert decode_struct(struct) == fields
