"""docs/reference/settings.md lists exactly the supported settings, with type and default."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backend_plugin.core.quantity import Quantity
from backend_plugin.core.settings import PodSecurityMode, Settings, TaskResources, kinds, reading

PAGE = (Path(__file__).parent.parent / "docs/reference/settings.md").read_text()
TYPES = {
    kinds.boolean: "true or false",
    kinds.causes: "causes by exit code",
    kinds.durations_by_cause: "durations by cause",
    kinds.duration: "duration",
    kinds.log_templates: "log templates",
    kinds.log_templates_by_name: "log templates by name",
    kinds.affinity: "as in a pod",
    kinds.dns_config: "as in a pod",
    kinds.pod_security_context: "as in a pod",
    kinds.pod_security_mode: "`off`, `warn` or `refuse`",
    kinds.pod_security_modes: "modes by namespace",
    kinds.security_context: "as in a pod",
    kinds.names: "names",
    kinds.pull_policy: "`Always`, `Never` or `IfNotPresent`",
    kinds.quantities: "quantities by resource",
    kinds.quantity: "quantity",
    kinds.requirement: "node selector requirement",
    kinds.text: "text",
    kinds.texts: "texts by name",
    kinds.toleration: "toleration",
    kinds.tolerations: "tolerations",
    kinds.tolerations_by_resource: "tolerations by resource",
}
UNSAID = ("", None, (), {}, timedelta(0))
DEFAULTS = Settings()


def table(heading: str) -> list[list[str]]:
    """Return the first three columns of the tables under a heading."""
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*) \|$", text, re.MULTILINE)
    return [[cell.strip() for cell in row.split(" | ")][:3] for row in rows]


def rows(readers: Mapping[str, Any], defaults: object) -> list[list[str]]:
    return [
        [f"`{key}`", type_of(reader), written(getattr(defaults, field_of(key)))]
        for key, reader in readers.items()
        if not isinstance(reader, Mapping)
    ]


def type_of(reader: Any) -> str:
    return "sections by name" if isinstance(reader, reading._ByName) else TYPES[reader]


def field_of(key: str) -> str:
    return reading._GRACES.get(key, key.replace("-", "_"))


def written(value: Any) -> str:
    """Return a default in the syntax of the settings file, or an empty text for an empty default."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value in UNSAID:
        return ""
    if isinstance(value, PodSecurityMode | Quantity):
        return f"`{value.value if isinstance(value, PodSecurityMode) else value.text}`"
    if isinstance(value, timedelta):
        hours, minutes = divmod(int(value.total_seconds()) // 60, 60)
        return f"`{hours}h`" if hours else f"`{minutes}m`"
    if isinstance(value, Mapping):
        return "<br>".join(f"`{key}: {msgspec.json.encode(item).decode()}`" for key, item in value.items())
    return f"`{value}`"


def test_every_setting_of_flyte_is_listed() -> None:
    flytes = {key: reader for key, reader in reading._FLYTES.items() if key != "default-env-vars-from-env"}
    looked_up = [["`default-env-vars-from-env`", TYPES[kinds.texts], ""]]
    expected = rows(flytes, DEFAULTS) + looked_up
    graces = rows(dict.fromkeys(reading._GRACES, kinds.duration), DEFAULTS.judging)
    assert sorted(table("Flyte's section")) == sorted(expected + graces)


@pytest.mark.parametrize(
    ("path", "defaults"),
    [
        ("kfpytorch", DEFAULTS.kfpytorch),
        ("kfpytorch.gang", DEFAULTS.kfpytorch.gang),
        ("kfpytorch.pod-security", DEFAULTS.kfpytorch.pod_security),
        ("kfpytorch.task-resources", TaskResources()),
        ("kfpytorch.judging", DEFAULTS.judging),
        ("kfpytorch.logs", DEFAULTS.logs),
    ],
)
def test_every_setting_of_ours_is_listed(path: str, defaults: object) -> None:
    readers: Any = reading._ALL
    for key in path.split("."):
        readers = readers[key]
    assert table(f"`{path}`") == rows(readers, defaults)


def test_every_setting_that_means_nothing_is_listed() -> None:
    text = PAGE.partition("\n## What means nothing here\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z-]+)`", text)) == reading._OF_OTHERS


def test_every_key_of_a_log_template_is_listed() -> None:
    keys = [field.encode_name for field in msgspec.structs.fields(kinds._LogTemplate)]
    assert [row[0] for row in table("Log templates")] == [f"`{key}`" for key in keys if key != "scheme"]
