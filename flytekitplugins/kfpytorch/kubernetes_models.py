"""Convert plain dicts to kubernetes models of the installed release.

The kubernetes package drops or rejects unknown fields, depending on its release. This module reports every
unknown field as an error with the most similar known name.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from flytekitplugins.kfpytorch.problems import suggest_name
from flytekitplugins.kfpytorch.validators import is_list

# A package with the classes V1PodSpec, V1Container, ...: `kubernetes.client.models` or an equivalent.
Models: TypeAlias = Any

# `list[X]` and `dict(str, X)` up to kubernetes 36, `List[X]` and `Dict[str, X]` since 37.
_LIST: Final = re.compile(r"[lL]ist\[(.*)\]")
_DICT: Final = re.compile(r"(?:dict\(|Dict\[)\w+, (.*)[\])]")


def import_models() -> Models:
    """Return the models of the installed kubernetes package, which is imported on first use."""
    from kubernetes.client import models  # Takes most of a second; most processes do not need it.

    return models


def convert_to_model(models: Models, type_name: str, value: object, path: str) -> Any:
    """Convert a value and all values within it to kubernetes models.

    Args:
        models: The package with the model classes.
        type_name: The type of the value: ``V1PodSpec``, ``list[V1Container]``, ``str``, ...
        value: A dict with the keys of a manifest (``volumeMounts``) or of the models
            (``volume_mounts``). Any other value is returned unchanged.
        path: The path of the value, for messages.

    Raises:
        ValueError: If a dict has an unknown field or lacks a required one.
    """
    if isinstance(value, Mapping):
        return _convert_mapping(models, type_name, value, path)
    if is_list(value) and (match := _LIST.fullmatch(type_name)):
        return [
            convert_to_model(models, match[1], item, f"{path}[{place}]") for place, item in enumerate(value)
        ]
    if type_name == "str" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)  # Manifests may contain `cpu: 4`; the models require text.
    return value


def _convert_mapping(models: Models, type_name: str, value: Mapping[str, object], path: str) -> Any:
    if match := _DICT.fullmatch(type_name):
        return {key: convert_to_model(models, match[1], item, f"{path}.{key}") for key, item in value.items()}
    cls = getattr(models, type_name, None)
    return value if cls is None else _build_model(models, cls, value, path)


def _build_model(models: Models, cls: Any, value: Mapping[str, object], path: str) -> Any:
    names = {wire: name for name, wire in cls.attribute_map.items()}
    arguments = {}
    for key, item in value.items():
        name = names.get(key, key)
        if name not in cls.attribute_map:
            hint = suggest_name(key, list(names))
            raise ValueError(f"{path}.{key}: {cls.__name__} has no such field{hint}")
        arguments[name] = convert_to_model(models, cls.openapi_types[name], item, f"{path}.{key}")
    try:
        return cls(**arguments)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
