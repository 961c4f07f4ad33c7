"""The tables for the custom resource definition contain only existing fields."""

from backend_plugin.core import schema_check
from backend_plugin.core.pod_schema import PARTS
from backend_plugin.embedded.admission.pod_tables import POD_KEYS
from backend_plugin.embedded.operators.pytorchjob.job_schema import DEFAULTS, JOB_PARTS, NEWER, REQUIRED

FIELDS = schema_check.parse_types(PARTS + JOB_PARTS)
SCALARS = {"string", "bool", "int32", "int64", "intstr", "quantity"}


def test_each_field_type_is_declared() -> None:
    named = {kind.strip("[]{}!") for fields in FIELDS.values() for kind in fields.values()}
    assert named - SCALARS - set(FIELDS) == set()


def test_tables_refer_only_to_declared_fields() -> None:
    tables = {
        "required": {part: set(fields.split()) for part, fields in REQUIRED.items()},
        "defaults": {part: set(fields) for part, fields in DEFAULTS.items()},
        "newer": {part: set(fields) for part, fields in NEWER.items()},
        "keys": {part: set(fields) for part, fields in POD_KEYS.items()},
    }
    unknown = {
        (table, part, field)
        for table, parts in tables.items()
        for part, fields in parts.items()
        for field in fields - set(FIELDS.get(part, ()))
    }
    assert unknown == set()


def test_list_keys_are_fields_of_the_entries() -> None:
    unknown = {
        (part, field, key)
        for part, lists in POD_KEYS.items()
        for field, keys in lists.items()
        for key in set(keys.split()) - set(FIELDS[FIELDS[part][field].strip("[]!")])
    }
    assert unknown == set()
