"""Convert plain dicts to kubernetes models of the installed release.

The readers of the models drop or reject unknown fields, depending on the release. This module reports every
unknown field as an error with the most similar known name.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from flytekitplugins.kfpytorch.problems import suggest_name

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
    if value is None:
        return None
    if (match := _LIST.fullmatch(type_name)) and isinstance(value, Sequence) and not isinstance(value, str):
        return [
            convert_to_model(models, match[1], item, f"{path}[{place}]") for place, item in enumerate(value)
        ]
    if (match := _DICT.fullmatch(type_name)) and isinstance(value, Mapping):
        return {key: convert_to_model(models, match[1], item, f"{path}.{key}") for key, item in value.items()}
    if type_name == "str" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)  # Manifests may contain `cpu: 4`; the models require text.
    if isinstance(value, Mapping) and hasattr(models, type_name):
        return _convert_mapping(models, type_name, value, path)
    return value


def _convert_mapping(models: Models, type_name: str, value: Mapping[str, object], path: str) -> Any:
    cls = getattr(models, type_name)
    names = {wire: name for name, wire in cls.attribute_map.items()} | {
        name: name for name in cls.attribute_map
    }
    for key in value:
        if key not in names:
            raise ValueError(
                f"{path}.{key}: {type_name} has no such "
                f"field{suggest_name(key, list(cls.attribute_map.values()))}"
            )
    arguments = {
        names[key]: convert_to_model(models, cls.openapi_types[names[key]], item, f"{path}.{key}")
        for key, item in value.items()
    }
    try:
        return cls(**arguments)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
