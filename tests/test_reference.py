"""The reference pages list exactly the items in the code: settings with type and default, metrics, causes."""

import inspect
import re
from collections.abc import Mapping
from datetime import timedelta
from operator import attrgetter
from pathlib import Path

import msgspec
import pytest
from server_metrics import get_exported_name, list_metrics

from backend_plugin.cli import serve, serve_check
from backend_plugin.core.judging import terminations
from backend_plugin.core.judging.verdict import is_retryable
from backend_plugin.core.settings import (
    PodSecurityMode,
    Settings,
    engine,
    loader,
    platform_parsers,
    value_parsers,
)
from backend_plugin.core.settings.judging import LogTemplate
from backend_plugin.shell.settings import SettingsSources, load_settings, machine_parsers
from backend_plugin.shell.settings.loader import KEYS, get_flag, get_variable
from flytekitplugins.kfpytorch import CleanPodPolicy, RestartPolicy
from kfpytorch_common.causes import CLUSTER_REMEDIES, REMEDIES, Cause
from kfpytorch_common.quantity import Quantity

ROOT = Path(__file__).parent.parent
VARIABLE = re.compile(r"FLYTE_KFPYTORCH_[A-Z_]+")
AS_IN_A_POD = ("affinity", "dns_config", "pod_security_context", "security_context")
TYPES = {
    **{getattr(platform_parsers, name): "as in a pod" for name in AS_IN_A_POD},
    value_parsers.boolean: "true or false",
    platform_parsers.causes_by_exit_code: "causes by exit code",
    platform_parsers.dialect: "`auto`, `pytorchjob` or `trainjob`",
    platform_parsers.dialects: "kinds of jobs by name",
    platform_parsers.times: "number",
    platform_parsers.durations_by_cause: "durations by cause",
    value_parsers.duration: "duration",
    platform_parsers.log_templates: "log templates",
    platform_parsers.log_templates_by_name: "log templates by name",
    platform_parsers.pod_security_mode: "`off`, `warn` or `enforce`",
    platform_parsers.pod_security_modes: "modes by namespace",
    value_parsers.names: "names",
    platform_parsers.pull_policy: "`Always`, `Never` or `IfNotPresent`",
    value_parsers.quantities: "quantities by resource",
    value_parsers.quantity: "quantity",
    platform_parsers.requirement: "node selector requirement",
    value_parsers.text: "text",
    value_parsers.text_map: "texts by name",
    value_parsers.message_size: "bytes",
    machine_parsers.parse_namespace_template: "template",
    machine_parsers.parse_path: "path",
    machine_parsers.parse_prefixes: "places",
    platform_parsers.toleration: "toleration",
    platform_parsers.tolerations: "tolerations",
    platform_parsers.tolerations_by_resource: "tolerations by resource",
}
DEFAULTS = Settings()
SERVER_DEFAULTS = load_settings(SettingsSources()).settings
FLAGS = {option for parameter in serve.command.params for option in parameter.opts}
MEBIBYTE = 2**20


def section(page, heading):
    text = (ROOT / "docs/reference" / page).read_text()
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def table(page, heading, columns=None):
    """Return the first columns of the tables under a heading, without header and delimiter row."""
    body = re.sub(r"^\|.*\|\n\|-.*\n", "", section(page, heading), flags=re.MULTILINE)
    rows = re.findall(r"^\| (.*) \|$", body, re.MULTILINE)
    return [[cell.strip() for cell in row.split(" | ")][:columns] for row in rows]


def plain_table(page, heading):
    """Return the tables under a heading, without code marks."""
    return [[cell.replace("`", "") for cell in row] for row in table(page, heading)]


def rows(readers, path=""):
    return [
        [f"`{key}`", type_of(reader), written(attrgetter(loader.get_field(f"{path}{key}"))(DEFAULTS))]
        for key, reader in readers.items()
        if not isinstance(reader, Mapping)
    ]


def type_of(reader):
    if isinstance(reader, engine.NamedSections):
        return "sections by name"
    if reader in TYPES:
        return TYPES[reader]
    closure = inspect.getclosurevars(reader).nonlocals
    if "words" in closure:
        return " or ".join(f"`{word}`" for word in closure["words"])
    return f"{closure['least']} to {closure['most']}"


def written(value):
    """Return a default in the syntax of the settings file, or an empty text for an empty default."""
    if value in ("", None, (), [], {}, timedelta(0)):
        return ""
    if isinstance(value, Mapping):
        return "<br>".join(f"`{key}: {msgspec.json.encode(item).decode()}`" for key, item in value.items())
    return ", ".join(f"`{text_of(each)}`" for each in (value if isinstance(value, list) else [value]))


def text_of(value):
    match value:
        case bool():
            return str(value).lower()
        case PodSecurityMode():
            return value.value
        case Quantity():
            return value.text
        case timedelta():
            hours, minutes = divmod(int(value.total_seconds()) // 60, 60)
            return f"{hours}h" if hours else f"{minutes}m"
        case int() if value >= MEBIBYTE:
            return f"{value // MEBIBYTE}Mi"
    return str(value)


def test_each_flyte_setting_is_listed():
    flytes = {key: reader for key, reader in loader._FLYTES.items() if key != "default-env-vars-from-env"}
    looked_up = [["`default-env-vars-from-env`", TYPES[value_parsers.text_map], ""]]
    expected = rows(flytes) + looked_up
    graces = rows(dict.fromkeys(loader._GRACES, value_parsers.duration))
    assert sorted(table("settings.md", "Flyte's section", 3)) == sorted(expected + graces)


@pytest.mark.parametrize(
    "path", ["", ".gang", ".pod-security", ".task-resources", ".timeouts", ".logs"], ids=lambda path: path[1:]
)
def test_each_kfpytorch_setting_is_listed(path: str) -> None:
    readers = loader._ALL
    for key in f"kfpytorch{path}".split("."):
        readers = readers[key]
    assert table("settings.md", f"`kfpytorch{path}`", 3) == rows(readers, f"kfpytorch{path}.")


def test_each_ignored_setting_is_listed():
    assert set(re.findall(r"`([a-z-]+)`", section("settings.md", "Keys without effect"))) == loader._OF_OTHERS


def test_each_key_of_a_log_template_is_listed():
    keys = [field.encode_name for field in msgspec.structs.fields(LogTemplate)]
    assert [row[0] for row in table("settings.md", "Log templates")] == [
        f"`{key}`" for key in keys if key != "scheme"
    ]


def default_of(key):
    """Return the default as text for the page, or an empty text for an empty default."""
    value = serve_check.get_value(SERVER_DEFAULTS, key)
    if key == "embedded.code-dir":
        assert value == str(Path.cwd())
        return "`.`"
    if key == "state-dir":
        return f"`{str(value).replace(str(Path.home()), '~')}`"
    return written(value)


def test_each_server_setting_is_listed():
    expected = []
    for key, reader in KEYS.items():
        flag = f"`{get_flag(key)}`" if get_flag(key) in FLAGS else ""
        expected.append([f"`{key}`", f"`{get_variable(key)}`", flag, type_of(reader), default_of(key)])
    assert table("server.md", "Settings", 5) == expected


def test_each_flag_has_a_setting_or_is_listed_separately():
    of_settings = {get_flag(key) for key in KEYS}
    cells = " ".join(cell for (cell,) in table("server.md", "Flags that are no settings", 1))
    assert FLAGS - of_settings == set(re.findall(r"-[\w-]+", cells))


def test_each_metric_is_listed():
    assert table("server.md", "Metrics", 3) == [
        [f"`{get_exported_name(part)}`", part._type, ", ".join(f"`{label}`" for label in part._labelnames)]
        for part in list_metrics()
    ]
    assert all(row[3] for row in table("server.md", "Metrics", 4)), "each has a unit"


def test_each_policy_is_listed():
    assert plain_table("task-config.md", "Policies") == [
        [policy.__name__, ", ".join(member.name for member in policy)]
        for policy in (RestartPolicy, CleanPodPolicy)
    ]


def test_each_cause_is_listed_with_its_remedy():
    assert [row[0] for row in plain_table("causes.md", "Words")] == [cause.value for cause in Cause]
    assert dict(plain_table("causes.md", "Hints")) == {cause.value: hint for cause, hint in REMEDIES.items()}


def test_each_cause_is_listed_with_retryability_and_cluster_remedy():
    remedies = {**REMEDIES, **CLUSTER_REMEDIES}
    assert plain_table("causes.md", "In a cluster") == [
        [cause.value, "yes" if is_retryable(cause) else "no", remedies.get(cause, "none").replace("`", "")]
        for cause in Cause
    ]


def test_each_pod_termination_is_listed_with_its_cause():
    rows = plain_table("causes.md", "Ends of pods")
    words = {
        "DisruptionTarget": terminations.DISRUPTIONS,
        "reason of the pod": terminations.POD_REASONS,
        "reason of the container": terminations.CONTAINER_REASONS,
    }
    assert [row for row in rows if row[0] != "exit code"] == [
        [said_by, word, cause.value] for said_by, table in words.items() for word, cause in table.items()
    ]
    codes = {int(row[1]): row[2] for row in rows if row[0] == "exit code"}
    assert codes == {code: terminations.classify_exit_code(code, {}).value for code in codes}
    assert codes.keys() >= terminations.EXIT_CODES.keys()


def test_each_environment_variable_is_listed():
    sources = [*ROOT.glob("flytekitplugins/**/*.py"), *ROOT.glob("kfpytorch_common/**/*.py")]
    read = {name for path in sources for name in VARIABLE.findall(path.read_text())}
    assert {row[0] for row in plain_table("local-runs.md", "Environment variables")} == read
