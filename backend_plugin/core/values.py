"""What manifests are made of: JSON, as Kubernetes speaks it."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
Manifest: TypeAlias = Mapping[str, JsonValue]
"""A Kubernetes object, or a part of one. Never changed: whoever needs another makes a new one."""
