"""The types of JSON values and manifests."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
Manifest: TypeAlias = Mapping[str, JsonValue]
"""A Kubernetes object, or a part of one. It is immutable; a change requires a copy."""
