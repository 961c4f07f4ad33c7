"""Access to the files of the chart, and the table of values and the schemas that derive from them."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.settings import loader, platform_parsers, value_parsers

ROOT: Final = Path(__file__).parents[2]
CHARTS: Final = ROOT / "charts"
CHART: Final = CHARTS / "kfpytorch-backend"
PAGE: Final = ROOT / "docs/reference/chart.md"
SCHEMA: Final = CHART / "values.schema.json"
VALUES: Final = CHART / "values.yaml"

_KEY: Final = re.compile(r"^(?P<indent> *)(?P<key>[\w-]+):(?P<value>.*)$")
_BEGUN: Final = "# -- "
_NOTHING: Final = (None, "", [], {})
_TEXTS: Final = {"type": ["object", "array"]}
# A quantity may also be a number.
_QUANTITY: Final = {
    "type": ["string", "number"],
    "pattern": "^([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$",
}
# YAML 1.1 reads the word off as false.
_MODE: Final = {"enum": ["off", "warn", "enforce", False]}
_DIALECT: Final = {"enum": ["auto", *(name.lower() for name in DIALECTS)]}
_SCHEMAS: Final[Mapping[Any, Any]] = {
    value_parsers.boolean: {"type": "boolean"},
    value_parsers.duration: {"type": "string", "pattern": "^(0|([0-9]+(\\.[0-9]+)?(ms|us|s|m|h))+)$"},
    value_parsers.names: {"type": "array", "items": {"type": "string"}},
    value_parsers.quantity: _QUANTITY,
    value_parsers.quantities: {"type": "object", "additionalProperties": _QUANTITY},
    platform_parsers.pull_policy: {"enum": ["Always", "IfNotPresent", "Never"]},
    value_parsers.text: {"type": "string"},
    platform_parsers.dialect: _DIALECT,
    platform_parsers.dialects: {"type": "object", "additionalProperties": _DIALECT},
    platform_parsers.times: {"type": "integer", "minimum": 0},
    platform_parsers.pod_security_mode: _MODE,
    platform_parsers.pod_security_modes: {"type": "object", "additionalProperties": _MODE},
    value_parsers.text_map: _TEXTS,
    platform_parsers.tolerations: {"type": "array", "items": {"type": "object"}},
    platform_parsers.log_templates: {"type": "array", "items": {"type": "object"}},
}
# Null is valid here, because Kubernetes or the cluster sets the value.
_LEFT_OUT: Final = (
    "resources",
    "doctor.resources",
    "topologySpreadKeys",
    "metrics.dashboard.labels",
    "podSecurityContext",
    "podSecurityContext.runAsUser",
    "podSecurityContext.runAsGroup",
    "podSecurityContext.fsGroup",
)
_OF_THE_CHART: Final = {
    "local-queue": "localQueue",
    "scheduler-name": "schedulerName",
    "pod-groups-by": "podGroupsBy",
    "schedule-timeout": "scheduleTimeout",
}
"""Names in the server's settings for which the chart's values have another spelling."""
# The chart has another value for this section, and two values could conflict.
_ELSEWHERE: Final = frozenset({"kfpytorch.gang"})


def read(name: str) -> Any:
    return yaml.safe_load((CHART / name).read_text())


def descriptions() -> Mapping[str, str]:
    found: dict[str, str] = {}
    lines: list[str] = []
    path: list[tuple[int, str]] = []
    for line in VALUES.read_text().splitlines():
        text = line.strip()
        if text.startswith(_BEGUN) or (lines and text.startswith("#")):
            lines.append(text.removeprefix(_BEGUN).removeprefix("# "))
        elif key := _KEY.match(line):
            indent = len(key["indent"])
            path = [*((depth, name) for depth, name in path if depth < indent), (indent, key["key"])]
            if lines:
                found[".".join(name for _, name in path)] = " ".join(lines)
                lines = []
    return found


def leaves(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each value by path. A section that the chart does not define itself is one value."""
    for key, part in schema["properties"].items():
        name = f"{path}{key}"
        if "properties" in part and key != "resources":
            yield from leaves(part, f"{name}.")
        else:
            yield name, part


def demanding(part: Mapping[str, Any], defaults: Mapping[str, Any], path: str = "") -> Mapping[str, Any]:
    """Return a schema that requires the values that templates need, because a null removes a default."""
    if "properties" not in part or not isinstance(defaults, Mapping):
        return part
    demanded = [
        key for key, value in defaults.items() if value not in _NOTHING and f"{path}{key}" not in _LEFT_OUT
    ]
    inner = {
        key: demanding(each, defaults.get(key), f"{path}{key}.") if key in demanded else each
        for key, each in part["properties"].items()
    }
    kept = {key: each for key, each in part.items() if key != "required"}
    return {**kept, "properties": inner, **({"required": sorted(demanded)} if demanded else {})}


def default(path: str) -> Any:
    found = read("values.yaml")
    for key in path.split("."):
        found = found[key]
    return found


def type_of(part: Mapping[str, Any]) -> str:
    if "enum" in part:
        return ", ".join(f"`{each}`" for each in part["enum"] if each)
    kind = "section" if "$ref" in part else part["type"]
    return _WORDS[kind[0] if isinstance(kind, list) else kind](part)


def _range(part: Mapping[str, Any]) -> str:
    return f"{part['minimum']} to {part['maximum']}" if "maximum" in part else f"{part['minimum']} or more"


def describe_object_type(part: Mapping[str, Any]) -> str:
    inner = part.get("additionalProperties") or {}
    return "sections by name" if "$ref" in inner else "texts by name" if inner else "as in a pod"


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "array": lambda part: "texts" if part["items"].get("type") == "string" else "as in a pod",
    "boolean": lambda _: "true or false",
    "integer": _range,
    "object": describe_object_type,
    "section": lambda _: "section",
    "string": lambda part: "duration" if "ms|us" in part.get("pattern", "") else "text",
}


def table() -> str:
    """Return the table of all values, in the order of the file."""
    schema = json.loads(SCHEMA.read_text())
    texts = descriptions()
    types = {path: type_of(part) for path, part in leaves(schema) if path != "global"}
    rows = [
        f"| `{path}` | {types[path]} | {_written(default(path))} | {text} |" for path, text in texts.items()
    ]
    return "\n".join(["| value | type | default | |", "|---|---|---|---|", *rows]) + "\n"


def _written(value: Any) -> str:
    if value in _NOTHING:
        return ""
    plain = str(value) if isinstance(value, str) else json.dumps(value)
    return f"`{plain}`"


def definitions() -> Mapping[str, Any]:
    """Return the schemas to which the schema of the values refers, from the readers of the server.

    They are Flyte's section, the gang options for some jobs, and a choice of gang options, whose key is the
    scheduler. Gang options have the properties of the general section `gang`.
    """
    of_all = json.loads(SCHEMA.read_text())["properties"]["gang"]["properties"]
    choice = loader._GANG["allowed-schedulers"].parsers
    found = {"gang": loader._OF_GANGS, "choice": choice, "platform": loader._ALL}
    sections = {name: _section(readers, "") for name, readers in found.items()}
    for name in ("gang", "choice"):
        sections[name]["properties"].update({key: of_all[_OF_THE_CHART.get(key, key)] for key in found[name]})
    return sections


def _section(readers: Mapping[str, Any], path: str) -> dict[str, Any]:
    kept = {key: each for key, each in readers.items() if f"{path}{key}" not in _ELSEWHERE}
    properties = {
        key: _section(each, f"{path}{key}.") if isinstance(each, Mapping) else _SCHEMAS.get(each, {})
        for key, each in sorted(kept.items())
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def permissions(rules: Iterable[Any]) -> set[tuple[str, str, str]]:
    """Return the API group, the resource and the verb of all permissions of these rules."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
