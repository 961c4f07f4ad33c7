"""Readers (see `validators`) for the options of `Master` and `Worker` that change their pods."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from flytekit import PodTemplate

from flytekitplugins.kfpytorch import validators
from flytekitplugins.kfpytorch.problems import (
    ConfigProblem,
    add_prefix,
    build_invalid_value,
    require_no_problems,
    suggest_name,
)
from flytekitplugins.kfpytorch.validators import Reader, find_problems
from kfpytorch_common import labels


def _check_label(key: object, value: object) -> Iterator[ConfigProblem]:
    if not (isinstance(key, str) and isinstance(value, str)):
        yield ConfigProblem("", value, "a label and its value must be text")
        return
    if not labels.is_key(key):
        yield ConfigProblem("", value, f"the name of a label is {labels.KEY}")
    if not labels.is_value(value):
        yield ConfigProblem("", value, f"the value of a label is {labels.VALUE}")


def _read_toleration(value: object) -> object:
    mapping = _find_mapping(value)
    if mapping is None:
        raise build_invalid_value(value, "must be a dict such as {'key': 'gpu', 'operator': 'Exists'}")
    require_no_problems(_check_toleration(value, mapping))
    return value


def _check_toleration(toleration: object, mapping: Mapping[Any, object]) -> Iterator[ConfigProblem]:
    if {"tolerationSeconds", "toleration_seconds"} <= {*mapping}:
        yield ConfigProblem("", toleration, "sets tolerationSeconds twice; leave one out")
    for key, item in mapping.items():
        reader = _TOLERATION.get("tolerationSeconds" if key == "toleration_seconds" else key)
        if reader is None:
            remedy = f"a toleration has no such key{suggest_name(key, [*_TOLERATION])}"
            yield ConfigProblem(str(key), item, remedy)
        elif item is not None:
            yield from find_problems(str(key), reader, item)


# The keys of Kubernetes. `toleration_seconds`, the name in kubernetes models, is accepted as well.
_TOLERATION: Final[Mapping[str, Reader]] = {
    "key": validators.read_text,
    "operator": validators.build_choice_reader("Exists", "Equal"),
    "value": validators.read_text,
    "effect": validators.build_choice_reader("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "tolerationSeconds": validators.read_int,
}


def _read_pod_template(value: object) -> object:
    if isinstance(value, PodTemplate):
        parts = {name: getattr(value, name) for name in ("labels", "annotations", "pod_spec")}
    elif isinstance(value, Mapping) and {*value} <= {"metadata", "spec"}:
        parts = dict(value)
    else:
        raise build_invalid_value(
            value, "must be a PodTemplate, or a dict with 'metadata' and 'spec' as in a manifest"
        )
    require_no_problems(_check_json_value(parts))
    return value


def _find_mapping(value: object) -> Mapping[Any, object] | None:
    """Return a dict unchanged, or the attributes of a kubernetes model that are not None.

    For any other value, return None.
    """
    names = getattr(value, "attribute_map", None)
    if isinstance(names, Mapping):
        attributes = {name: getattr(value, name) for name in names}
        return {name: item for name, item in attributes.items() if item is not None}
    return value if isinstance(value, Mapping) else None


def _check_json_value(value: object) -> Iterator[ConfigProblem]:
    """Yield a problem for each value within `value` that cannot be written as JSON in a manifest."""
    entries = _find_entries(value)
    if entries is None and not _is_json_scalar(value):
        yield ConfigProblem("", value, "must be text, a number, a list or a dict, as in a manifest")
    for key, item in entries or ():
        if isinstance(key, str):
            yield from add_prefix(key, _check_json_value(item))
        else:
            yield ConfigProblem("", key, "a key must be text")


def _find_entries(value: object) -> Iterable[tuple[object, object]] | None:
    """Return the items of a dict or kubernetes model, or of a list with keys such as ``[0]``; else None."""
    mapping = _find_mapping(value)
    if mapping is not None:
        return mapping.items()
    if isinstance(value, (list, tuple)):
        return [(f"[{place}]", item) for place, item in enumerate(value)]
    return None


def _is_json_scalar(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, int))


READERS: Final[Mapping[str, Reader]] = {
    "node_selector": validators.build_mapping_reader(
        _check_label, "must be a dict of labels such as {'gpu': 'h100'}"
    ),
    "tolerations": validators.build_list_reader(
        _read_toleration,
        "must be a list of tolerations such as {'key': 'gpu', 'operator': 'Exists'}",
    ),
    "pod_template": _read_pod_template,
    "priority_class_name": validators.read_priority_class,
}
