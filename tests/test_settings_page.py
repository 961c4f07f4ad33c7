"""docs/reference/settings.md lists exactly the supported settings, with type and default."""

import re
from collections.abc import Mapping
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backend_plugin.core.quantity import Quantity
from backend_plugin.core.settings import (
    PodSecurityMode,
    Settings,
    engine,
    loader,
    platform_parsers,
    value_parsers,
)
from backend_plugin.core.settings.logs import LogTemplate

PAGE = (Path(__file__).parent.parent / "docs/reference/settings.md").read_text()
TYPES = {
    value_parsers.boolean: "true or false",
    platform_parsers.causes_by_exit_code: "causes by exit code",
    platform_parsers.dialect: "`auto`, `pytorchjob` or `trainjob`",
    platform_parsers.dialects: "kinds of jobs by name",
    platform_parsers.times: "number",
    platform_parsers.durations_by_cause: "durations by cause",
    value_parsers.duration: "duration",
    platform_parsers.log_templates: "log templates",
    platform_parsers.log_templates_by_name: "log templates by name",
    platform_parsers.affinity: "as in a pod",
    platform_parsers.dns_config: "as in a pod",
    platform_parsers.pod_security_context: "as in a pod",
    platform_parsers.pod_security_mode: "`off`, `warn` or `enforce`",
    platform_parsers.pod_security_modes: "modes by namespace",
    platform_parsers.security_context: "as in a pod",
    value_parsers.names: "names",
    platform_parsers.pull_policy: "`Always`, `Never` or `IfNotPresent`",
    value_parsers.quantities: "quantities by resource",
    value_parsers.quantity: "quantity",
    platform_parsers.requirement: "node selector requirement",
    value_parsers.text: "text",
    value_parsers.text_map: "texts by name",
    platform_parsers.toleration: "toleration",
    platform_parsers.tolerations: "tolerations",
    platform_parsers.tolerations_by_resource: "tolerations by resource",
}
UNSAID = ("", None, (), {}, timedelta(0))
DEFAULTS = Settings()


def table(heading: str) -> list[list[str]]:
    """Return the first three columns of the tables under a heading."""
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*) \|$", text, re.MULTILINE)
    return [[cell.strip() for cell in row.split(" | ")][:3] for row in rows]


def rows(readers: Mapping[str, Any], path: str = "") -> list[list[str]]:
    return [
        [f"`{key}`", type_of(reader), written(attrgetter(loader.get_field(f"{path}{key}"))(DEFAULTS))]
        for key, reader in readers.items()
        if not isinstance(reader, Mapping)
    ]


def type_of(reader: Any) -> str:
    return "sections by name" if isinstance(reader, engine.NamedSections) else TYPES[reader]


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


def test_each_flyte_setting_is_listed() -> None:
    flytes = {key: reader for key, reader in loader._FLYTES.items() if key != "default-env-vars-from-env"}
    looked_up = [["`default-env-vars-from-env`", TYPES[value_parsers.text_map], ""]]
    expected = rows(flytes) + looked_up
    graces = rows(dict.fromkeys(loader._GRACES, value_parsers.duration))
    assert sorted(table("Flyte's section")) == sorted(expected + graces)


@pytest.mark.parametrize(
    "path", ["", ".gang", ".pod-security", ".task-resources", ".timeouts", ".logs"], ids=lambda path: path[1:]
)
def test_each_kfpytorch_setting_is_listed(path: str) -> None:
    readers: Any = loader._ALL
    for key in f"kfpytorch{path}".split("."):
        readers = readers[key]
    assert table(f"`kfpytorch{path}`") == rows(readers, f"kfpytorch{path}.")


def test_each_ignored_setting_is_listed() -> None:
    text = PAGE.partition("\n## What means nothing here\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z-]+)`", text)) == loader._OF_OTHERS


def test_each_key_of_a_log_template_is_listed() -> None:
    keys = [field.encode_name for field in msgspec.structs.fields(LogTemplate)]
    assert [row[0] for row in table("Log templates")] == [f"`{key}`" for key in keys if key != "scheme"]
