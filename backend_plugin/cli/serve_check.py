"""``kfpytorch serve --check``: prints the effective settings with their sources, and all problems."""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
import rich_click as click

from backend_plugin.cli import command_errors, input_files, json_lines, serve_settings
from backend_plugin.core import printable
from backend_plugin.core.errors import BackendError, InvalidSettings, Problem
from backend_plugin.core.settings import Settings, loader
from backend_plugin.embedded.state_lock import find_foreign_files, find_holder
from backend_plugin.shell import credentials, tracing
from backend_plugin.shell.credentials import Token
from backend_plugin.shell.output_prefixes import STORES, OutputPrefixes
from backend_plugin.shell.server import find_bind_error
from backend_plugin.shell.settings import ClusterKind, EffectiveSettings, Flags, ServerSettings
from backend_plugin.shell.settings.loader import KEYS
from kfpytorch_common.quantity import Quantity

_DEFAULT: Final = "default"
_SECTIONS: Final = ("tls", "embedded", "kubernetes")
_PLATFORM: Final = "plugins.k8s."
"""The prefix of the keys of platform settings; the keys of server settings have no prefix."""


def print_report(file: str | None, flags: Flags, form: str) -> int:
    """Print the settings and their problems; return the exit code, 0 if a server would start with them."""
    notes: Sequence[str] = ()
    settings: Mapping[str, tuple[Any, str]] = {}
    try:
        configuration = serve_settings.read_configuration(file, flags)
    except InvalidSettings as refusal:
        problems: Sequence[Problem] = refusal.problems
    except command_errors.UnusableInput as error:
        command_errors.exit_with_error(error)
    else:
        problems = [*_iter_problems(configuration.server)]
        settings = _list_values(configuration, file)
        missing = _iter_missing_packages(configuration.server.settings)
        notes = [f"{scheme}:// cannot be read: {package} is not installed" for scheme, package in missing]
    if form == "json":
        values = {key: {"value": value, "source": source} for key, (value, source) in settings.items()}
        report = {"ok": not problems, "settings": values, "problems": problems, "notes": notes}
        json_lines.print_json(report)
    else:
        _print_text(settings, problems, notes)
    return command_errors.exit_code(problems)


def _iter_problems(effective: EffectiveSettings) -> Iterator[Problem]:
    settings = effective.settings
    yield from _iter_file_problems(effective)
    if why_not := _find_directory_problem(settings.state_dir) or _find_state_problem(settings):
        yield _build_problem(effective, "state-dir", why_not, "name another directory")
    for key, host, port in (
        ("port", settings.host, settings.port),
        ("metrics.port", settings.metrics_host, settings.metrics_port),
    ):
        if port is not None and (why_not := find_bind_error(host, port)):
            remedy = "stop the process that listens there, or set another port, or 0 for a free one"
            yield _build_problem(effective, key, f"cannot listen on this port: {why_not}", remedy)
    for scheme, package in _iter_missing_packages(settings):
        if "output-prefixes" in effective.sources:
            yield _build_problem(
                effective, "output-prefixes", f"{scheme}:// needs {package}", f"pip install {package}"
            )
    yield from _iter_tracing_problems()


def _iter_tracing_problems() -> Iterator[Problem]:
    try:
        with tracing.open_tracing(os.environ):
            pass
    except tracing.TracingUnavailable as error:
        yield Problem(field="OTEL_*", value="", message=str(error), remedy="see OpenTelemetry's variables")


def _iter_file_problems(effective: EffectiveSettings) -> Iterator[Problem]:
    from backend_plugin.cli import clusters
    from backend_plugin.embedded import pod_templates

    settings = effective.settings
    for key, attempt in (
        ("tls.certificate", lambda: settings.tls and credentials.build_server_credentials(settings.tls)),
        ("token-file", lambda: settings.token_file and Token.from_file(settings.token_file)),
        (
            "signing-keys-file",
            lambda: (
                settings.signing_keys_file
                and credentials.read_key_file(settings.signing_keys_file, accepts_unsigned=False)
            ),
        ),
        ("embedded.pod-templates", lambda: pod_templates.read_templates(settings.embedded.pod_templates)),
        ("kubernetes.kubeconfig", lambda: clusters.require_credentials(settings)),
    ):
        try:
            attempt()
        except BackendError as error:
            remedy = "name files that this user can read, with the expected content"
            yield _build_problem(effective, key, str(error), remedy)


def _build_problem(effective: EffectiveSettings, key: str, message: str, remedy: str) -> Problem:
    value = str(get_value(effective.settings, key))
    return Problem(field=f"server.{key}", value=value, message=message, remedy=remedy)


def _find_directory_problem(directory: Path) -> str | None:
    there = next(each for each in (directory, *directory.parents) if each.exists())
    if not there.is_dir():
        return f"{there} is not a directory"
    return (
        None if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written by user {os.geteuid()}"
    )


def _find_state_problem(settings: ServerSettings) -> str | None:
    """Return why the state directory of an embedded cluster cannot be used; None or empty if it can."""
    if settings.cluster is not ClusterKind.EMBEDDED:
        return None
    holder = find_holder(settings.state_dir)
    return f"is in use by process {holder}" if holder else find_foreign_files(settings.state_dir)


def _iter_missing_packages(settings: ServerSettings) -> Iterator[tuple[str, str]]:
    for scheme in sorted(OutputPrefixes(settings.output_prefixes).schemes - {"file"}):
        if find_spec(STORES[scheme]) is None:
            yield scheme, STORES[scheme]


def _print_text(
    settings: Mapping[str, tuple[Any, str]], problems: Sequence[Problem], notes: Sequence[str]
) -> None:
    width = max(map(len, settings), default=0)
    for key, (value, source) in settings.items():
        text = value if isinstance(value, str) else json_lines.encode_json(value).decode()
        shown = "" if value in (None, [], {}) else text
        click.echo(printable.escape(f"{key:<{width}}  {shown}  ({source})"))
    for note in notes:
        click.echo(printable.escape(f"note: {note}"))
    command_errors.print_problems(problems)


# ---- values


def _list_values(
    configuration: serve_settings.Configuration, file: str | None
) -> Mapping[str, tuple[Any, str]]:
    """Return the value and the source of each setting of the server and of the platform, by its key."""
    server = configuration.server
    values = {key: (get_value(server.settings, key), server.sources.get(key, _DEFAULT)) for key in KEYS}
    return {**values, **_list_platform_values(configuration, file or _DEFAULT)}


def _list_platform_values(
    configuration: serve_settings.Configuration, file: str
) -> Mapping[str, tuple[Any, str]]:
    section, values = configuration.section, {}
    for key in loader.list_keys():
        written = _find_value(section, key)
        value = _get_platform_value(configuration.platform, key)
        source = _DEFAULT if written is None else file
        values[_PLATFORM + key] = (_encode_value(written if value is None else value), source)
    for key in loader.list_named_sections():
        if written := _find_value(section, key):
            values[_PLATFORM + key] = (_encode_value(written), file)
    return values


def get_value(settings: ServerSettings, key: str) -> Any:
    """Return the value of the server's setting `key` as a JSON value; None if it is not set."""
    part, _, rest = key.replace("-", "_").partition(".")
    if part in _SECTIONS:
        return _encode_value(getattr(getattr(settings, part), rest, None))
    return _encode_value(getattr(settings, f"{part}_{rest}" if rest else part))


def _find_value(section: Mapping[str, Any], key: str) -> Any:
    found = input_files.get_nested(section, key.split("."))
    return None if found in ({}, []) else found


def _get_platform_value(settings: Settings, key: str) -> Any:
    found: Any = settings
    for part in loader.get_field(key).split("."):
        found = getattr(found, part, None)
    return found


def _encode_value(value: Any) -> Any:
    """Return the value of a setting in a form that `json.dumps` accepts, such as ``90s`` for a timedelta."""
    match value:
        case Quantity():
            return value.text
        case timedelta():
            return f"{value.total_seconds():g}s"
        case Mapping():
            return {str(_encode_value(key)): _encode_value(each) for key, each in value.items()}
        case list() | tuple():
            return [_encode_value(each) for each in value]
        case _ if dataclasses.is_dataclass(value):
            names = [each.name for each in dataclasses.fields(value)]
            return {name.replace("_", "-"): _encode_value(getattr(value, name)) for name in names}
        case _:
            return msgspec.to_builtins(value, enc_hook=str)
