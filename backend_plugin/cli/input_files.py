"""Reads settings, PodTemplates and capabilities as YAML or JSON from files, or from stdin for ``-``."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from backend_plugin.cli.command_errors import Misused, UnusableInput
from backend_plugin.core import settings as platform
from backend_plugin.core.errors import InvalidSettings, Problem
from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities
from backend_plugin.core.values import Manifest
from backend_plugin.shell import bounded_read, yaml_loader

# The path of `plugins.k8s` in the values of Flyte's two charts.
_CHARTS: Final = (("configuration", "inline"), ("configmap", "k8s"))
# The path of admin's `task_resources` in Flyte's configuration and in the values of its charts.
_TASK_RESOURCES: Final = (
    ("task_resources",),
    ("configuration", "inline", "task_resources"),
    ("configmap", "task_resource_defaults", "task_resources"),
)
_PLUGINS: Final = ("plugins",)
_OUR_SECTION: Final = "kfpytorch"
_NO_MAPPING: Final = "is not a mapping; write Flyte's plugins.k8s section"
_EPHEMERAL_STORAGE: Final = "ephemeral-storage"
SERVER_SECTION: Final = "server"
"""The key of the server's own settings in a settings file."""


def read_settings(file: str | None) -> platform.Settings:
    """Return the platform settings in a file, or Flyte's defaults if `file` is None.

    Raises:
        UnusableInput: If the file cannot be read, or is not a mapping.
        InvalidSettings: If it contains unknown or invalid settings; the error contains all of them.
    """
    document = read_document(file)
    document.pop(SERVER_SECTION, None)
    problems = [*find_misplaced_sections(document)]
    try:
        settings = platform.read(get_plugin_section(document, file))
    except InvalidSettings as refusal:
        raise InvalidSettings(*problems, *refusal.problems) from refusal
    if problems:
        raise InvalidSettings(*problems)
    return settings


def read_document(file: str | None) -> dict[str, Any]:
    """Return the content of a settings file; an empty mapping for an empty file and without a file.

    Raises:
        UnusableInput: If the file cannot be read, contains more than one document, or is not a mapping.
    """
    if file is None:
        return {}
    documents = [each for each in _read_documents(file, "settings") if each is not None]
    if len(documents) > 1:
        raise UnusableInput(f"settings {file}: has more than one document; write one")
    document = documents[0] if documents else {}
    if not isinstance(document, Mapping):
        raise UnusableInput(f"settings {file}: {_NO_MAPPING}")
    return dict(document)


def get_plugin_section(document: Mapping[str, Any], file: str | None) -> Mapping[str, Any]:
    """Return the ``plugins.k8s`` section of a settings file, with Flyte's ``task_resources`` added.

    The file contains only this section, or it is a configuration of Flyte or values of Flyte's charts.
    """
    resources = next((each for path in _TASK_RESOURCES if (each := get_nested(document, path))), None)
    others = {key: value for key, value in document.items() if key != "task_resources"}
    section = _unwrap_plugins(_unwrap_chart(others))
    if not isinstance(section, Mapping):
        raise UnusableInput(f"settings {file}: {_NO_MAPPING}")
    if isinstance(resources, Mapping):
        resources = {part: _with_storage_renamed(amounts) for part, amounts in resources.items()}
    return dict(_with_plugin_setting(section, "task-resources", resources))


def find_misplaced_sections(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each section ``kfpytorch`` that is not in ``k8s`` but beside it or ``plugins``.

    Other unknown sections can belong to Flyte's configuration.
    """
    chart = next((path for path in _CHARTS if isinstance(get_nested(document, path[:1]), Mapping)), ())
    if not chart and get_nested(document, _PLUGINS) is None:
        return
    wanted = ".".join((*chart, *_PLUGINS, "k8s", _OUR_SECTION))
    for parent in dict.fromkeys([(), chart, (*chart, *_PLUGINS)]):
        path = (*parent, _OUR_SECTION)
        if (value := get_nested(document, path)) is not None:
            message, remedy = "has no effect outside of plugins.k8s", f"move it to {wanted}"
            yield Problem(field=".".join(path), value=str(value), message=message, remedy=remedy)


def _unwrap_chart(document: Any) -> Any:
    """Return the Flyte configuration in the values of a chart; other documents are returned unchanged."""
    for chart, part in _CHARTS:
        values = get_nested(document, (chart,))
        if isinstance(values, Mapping):
            # Chart values may have other content and no `plugins`.
            inner = values.get(part) or {}
            document = {"plugins": inner.get("plugins") or {}} if isinstance(inner, Mapping) else inner
    return document


def _unwrap_plugins(document: Any) -> Any:
    """Return ``plugins.k8s`` of a Flyte configuration, or ``k8s``; other documents are returned unchanged."""
    plugins = get_nested(document, _PLUGINS)
    if plugins is not None:
        if not isinstance(plugins, Mapping):
            return plugins
        return _with_plugin_setting(plugins.get("k8s") or {}, "logs", plugins.get("logs"))
    is_section = isinstance(document, Mapping) and set(document) == {"k8s"}
    return (document["k8s"] or {}) if is_section else document


def _with_plugin_setting(section: Any, key: str, value: Any) -> Any:
    """Return a ``plugins.k8s`` section with `value` as setting ``kfpytorch.KEY``, unless the file sets it.

    Return the section unchanged if the value is empty, or if the section or its ``kfpytorch`` is no mapping.
    """
    plugin = (section.get(_OUR_SECTION) or {}) if isinstance(section, Mapping) else None
    if not value or not isinstance(plugin, Mapping):
        return section
    return {**section, _OUR_SECTION: {key: value, **plugin}}


def _with_storage_renamed(amounts: Any) -> Any:
    """Rename Flyte's resource ``ephemeralStorage`` (in any case) to Kubernetes' ``ephemeral-storage``."""
    if not isinstance(amounts, Mapping):
        return amounts
    return {
        _EPHEMERAL_STORAGE if str(name).lower() == "ephemeralstorage" else name: amount
        for name, amount in amounts.items()
    }


def read_pod_templates(files: Iterable[str]) -> Sequence[Manifest]:
    """Return all PodTemplates in the files, which contain them as ``kubectl`` writes them.

    Raises:
        UnusableInput: If a file cannot be read, or contains another kind of object.
    """
    templates: list[Manifest] = []
    for file in files:
        documents = _read_documents(file, "pod template")
        for each in chain.from_iterable(get_nested(one, ("items",)) or [one] for one in documents):
            kind = each.get("kind") if isinstance(each, Mapping) else None
            if kind != "PodTemplate":
                content = f"a {kind}" if kind else "a value that is not an object"
                raise UnusableInput(f"pod template {file}: contains {content}; write a PodTemplate")
            templates.append(each)
    return templates


def read_capabilities(file: str | None) -> Capabilities:
    """Return the gang capabilities in a file, or no capabilities if `file` is None.

    Raises:
        UnusableInput: If the file cannot be read, or is invalid.
    """
    if file is None:
        return NOTHING
    documents = _read_documents(file, "capabilities")
    try:
        return msgspec.convert(documents[0] if len(documents) == 1 else documents, Capabilities)
    except msgspec.ValidationError as refusal:
        remedy = "copy the gang capabilities from the log of a server"
        raise UnusableInput(f"capabilities {file}: {refusal}; {remedy}") from refusal


def read_input(file: str, what: str = "") -> bytes:
    """Return the content of a file or of stdin.

    Raises:
        Misused: If the file cannot be read, or is too large; the message starts with `what`.
    """
    try:
        if file == "-":
            return bounded_read.read_all(sys.stdin.buffer)
        with Path(file).open("rb") as source:
            return bounded_read.read_all(source)
    except OSError as error:
        raise Misused(f"{what}{file}: {error.strerror}") from error


def get_nested(value: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of keys in nested mappings, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _read_documents(file: str, what: str) -> Sequence[Any]:
    import yaml

    # Bytes, because YAML detects the encoding and byte order marks.
    content = read_input(file, f"{what} ")
    try:
        return yaml_loader.load_documents(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnusableInput(f"{what} {file}: is not YAML: {error}") from error
