"""Check the options of `Master` and `Worker` that change their pods, such as tolerations."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from flytekit import PodTemplate
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.struct_pb2 import Struct

from flytekitplugins.kfpytorch import validators
from flytekitplugins.kfpytorch.config_base import encode_value, read_fields
from flytekitplugins.kfpytorch.problems import ConfigProblem, build_invalid_value, suggest_name
from flytekitplugins.kfpytorch.validators import Reader, build_mapping_reader, find_problems
from kfpytorch_common import labels


def _check_label(key: object, value: object) -> Iterator[ConfigProblem]:
    if not (isinstance(key, str) and isinstance(value, str)):
        yield ConfigProblem("", value, "a label and its value must be text")
        return
    if not labels.is_key(key):
        yield ConfigProblem("", value, f"the name of a label is {labels.KEY}")
    if not labels.is_value(value):
        yield ConfigProblem("", value, f"the value of a label is {labels.VALUE}")


# The keys in a manifest, and `toleration_seconds`, the name of `tolerationSeconds` in kubernetes models.
_TOLERATION: Final[Mapping[object, Reader]] = {
    "key": validators.read_text,
    "operator": validators.build_choice_reader("Exists", "Equal"),
    "value": validators.read_text,
    "effect": validators.build_choice_reader("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "tolerationSeconds": validators.read_int,
    "toleration_seconds": validators.read_int,
}


def _check_toleration(key: object, value: object) -> Iterable[ConfigProblem]:
    reader = _TOLERATION.get(key)
    if reader is None:
        hint = suggest_name(key, [*map(str, _TOLERATION)])
        return [ConfigProblem("", value, f"a toleration has no such key{hint}")]
    return [] if value is None else find_problems("", reader, value)


_read_toleration_fields: Final = build_mapping_reader(
    _check_toleration, "must be a dict such as {'key': 'gpu', 'operator': 'Exists'}"
)


def _read_toleration(value: object) -> object:
    fields = read_fields(value)
    _read_toleration_fields(value if fields is None else fields)
    if fields and {"tolerationSeconds", "toleration_seconds"} <= {*fields}:
        raise build_invalid_value(value, "must contain only one of tolerationSeconds and toleration_seconds")
    return value


def read_pod_template(value: object) -> object:
    """Return a valid ``pod_template`` of a role; raise `InvalidValue` for any other value."""
    if not isinstance(value, PodTemplate) and not (
        isinstance(value, Mapping) and {*value} <= {"metadata", "spec"}
    ):
        raise build_invalid_value(
            value, "must be a PodTemplate, or a dict with 'metadata' and 'spec' as in a manifest"
        )
    try:
        MessageToDict(ParseDict(encode_value(value), Struct()))
    except (ParseError, TypeError, ValueError) as error:
        remedy = f"must consist of text, numbers, lists and dicts with text as keys: {error}"
        raise build_invalid_value(value, remedy) from error
    return value


read_node_selector: Final = build_mapping_reader(
    _check_label, "must be a dict of labels such as {'gpu': 'h100'}"
)
read_tolerations: Final = validators.build_list_reader(
    _read_toleration, "must be a list of tolerations such as {'key': 'gpu', 'operator': 'Exists'}"
)
