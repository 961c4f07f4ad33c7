"""docs/reference/server.md lists exactly the settings and metrics of a server."""

import inspect
import re
from pathlib import Path
from typing import Any

from server_metrics import get_exported_name, list_metrics

from backend_plugin.cli import effective_values, serve
from backend_plugin.core.settings import value_parsers
from backend_plugin.shell.settings import SettingsSources, load_settings, machine_parsers
from backend_plugin.shell.settings.loader import KEYS, get_flag, get_variable

PAGE = (Path(__file__).parent.parent / "docs/reference/server.md").read_text()
TYPES = {
    value_parsers.boolean: "true or false",
    machine_parsers.parse_namespace_template: "template",
    machine_parsers.parse_path: "path",
    machine_parsers.parse_prefixes: "places",
    value_parsers.names: "names",
    value_parsers.message_size: "bytes",
    value_parsers.text_map: "texts by name",
    value_parsers.duration: "duration",
    value_parsers.quantity: "quantity",
    value_parsers.text: "text",
}
DEFAULTS = load_settings(SettingsSources()).settings
FLAGS = {option for parameter in serve.command.params for option in parameter.opts}
MEBIBYTE = 2**20


def table(heading: str, columns: int) -> list[list[str]]:
    """Return the first columns of the tables under a heading."""
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*) \|$", text, re.MULTILINE)
    return [[cell.strip() for cell in row.split(" | ")][:columns] for row in rows]


def type_of(reader: Any) -> str:
    if reader in TYPES:
        return TYPES[reader]
    closure = inspect.getclosurevars(reader).nonlocals
    if "words" in closure:
        return " or ".join(f"`{word}`" for word in closure["words"])
    return f"{closure['least']} to {closure['most']}"


def default_of(key: str) -> str:
    """Return the default as text for the page, or an empty text for an empty default."""
    value = effective_values.get_value(DEFAULTS, key)
    if key == "embedded.code-dir":
        assert value == str(Path.cwd())
        return "`.`"
    if key == "state-dir":
        return f"`{str(value).replace(str(Path.home()), '~')}`"
    return written(value)


def written(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value in (None, (), [], {}):
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(f"`{each}`" for each in value)
    if isinstance(value, int) and value >= MEBIBYTE:
        return f"`{value // MEBIBYTE}Mi`"
    return f"`{value}`"


def test_each_server_setting_is_listed() -> None:
    expected = []
    for key, reader in KEYS.items():
        flag = f"`{get_flag(key)}`" if get_flag(key) in FLAGS else ""
        expected.append([f"`{key}`", f"`{get_variable(key)}`", flag, type_of(reader), default_of(key)])
    assert table("Settings", 5) == expected


def test_each_flag_has_a_setting_or_is_listed_separately() -> None:
    of_settings = {get_flag(key) for key in KEYS}
    apart = {
        name for row in table("Flags that are no settings", 1) for name in re.findall(r"-[\w-]+", row[0])
    }
    assert FLAGS - of_settings == apart


def test_each_metric_is_listed() -> None:
    assert table("Metrics", 3) == [
        [f"`{get_exported_name(part)}`", part._type, ", ".join(f"`{label}`" for label in part._labelnames)]
        for part in list_metrics()
    ]
    assert all(row[3] for row in table("Metrics", 4)), "each has a unit"
