"""``kfpytorch serve --check``: prints the effective settings with their sources, and all problems."""

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import rich_click as click

from backend_plugin.cli import command_errors, effective_values, json_lines, serve_settings
from backend_plugin.core import printable
from backend_plugin.core.errors import BackendError, InvalidSettings, Problem
from backend_plugin.embedded.state_lock import find_foreign_files
from backend_plugin.shell import credentials, server_file, tracing
from backend_plugin.shell.credentials import KeyRing, Token
from backend_plugin.shell.output_prefixes import STORES, OutputPrefixes
from backend_plugin.shell.server import find_bind_error
from backend_plugin.shell.settings import ClusterKind, EffectiveSettings, Flags, ServerSettings


def print_report(file: str | None, flags: Flags, form: str) -> int:
    """Print the report; return the exit code, which is 0 if a server would start with these settings."""
    effective: EffectiveSettings | None = None
    settings: Mapping[str, tuple[Any, str]] = {}
    try:
        configuration = serve_settings.read_configuration(file, flags)
    except InvalidSettings as refusal:
        problems: Sequence[Problem] = refusal.problems
    except command_errors.InvalidInput as error:
        command_errors.exit_with_error(error)
    else:
        effective = configuration.server
        problems = [*_iter_problems(effective)]
        settings = effective_values.list_values(configuration, file or "")
    notes = [*_iter_notes(effective.settings)] if effective else []
    if form == "json":
        _print_json(settings, problems, notes)
    else:
        _print_text(settings, problems, notes)
    return command_errors.exit_code(problems)


def _iter_problems(effective: EffectiveSettings) -> Iterator[Problem]:
    settings = effective.settings
    yield from _iter_file_problems(effective)
    if why_not := _find_directory_problem(settings.state_dir) or _find_state_problem(settings):
        yield _build_problem(effective, "state-dir", why_not, "name another directory")
    if why_not := _find_port_problem(settings):
        remedy = "stop the process that listens there, or set another port, or 0 for a free one"
        yield _build_problem(effective, "port", why_not, remedy)
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
                and KeyRing.from_file(settings.signing_keys_file, accepts_unsigned=settings.accept_unsigned)
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
    value = str(effective_values.get_value(effective.settings, key))
    return Problem(field=f"server.{key}", value=value, message=message, remedy=remedy)


def _find_directory_problem(directory: Path) -> str | None:
    there = next(each for each in (directory, *directory.parents) if each.exists())
    if not there.is_dir():
        return f"{there} is not a directory"
    return (
        None if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written by user {os.geteuid()}"
    )


def _find_state_problem(settings: ServerSettings) -> str | None:
    """Return why an embedded cluster would not use the state directory; None if there is no reason."""
    return find_foreign_files(settings.state_dir) if settings.cluster is ClusterKind.EMBEDDED else None


def _find_port_problem(settings: ServerSettings) -> str | None:
    """Return why the port is not available, or None. A server with the same state directory may use it."""
    here = server_file.read(settings.state_dir)
    if settings.port == 0 or (
        here and server_file.is_alive(here) and here.endpoint.endswith(f":{settings.port}")
    ):
        return None
    why_not = find_bind_error(settings.host, settings.port)
    return f"cannot listen on this port: {why_not}" if why_not else None


def _iter_missing_packages(settings: ServerSettings) -> Iterator[tuple[str, str]]:
    for scheme in sorted(OutputPrefixes(settings.output_prefixes).schemes - {"file"}):
        if find_spec(STORES[scheme]) is None:
            yield scheme, STORES[scheme]


def _iter_notes(settings: ServerSettings) -> Iterator[str]:
    for scheme, package in _iter_missing_packages(settings):
        yield f"{scheme}:// cannot be read: {package} is not installed"
    here = server_file.read(settings.state_dir)
    if here is not None and server_file.is_alive(here):
        yield f"a server with this state directory is running: {here.endpoint}, process {here.pid}"


def _print_text(
    settings: Mapping[str, tuple[Any, str]], problems: Sequence[Problem], notes: Sequence[str]
) -> None:
    width = max(map(len, settings), default=0)
    for key, (value, source) in settings.items():
        shown = "" if value in (None, [], {}) else value if isinstance(value, str) else _encode_json(value)
        line = f"{key:<{width}}  {shown}  ({source})"
        click.echo(printable.escape(line).rstrip())
    for note in notes:
        click.echo(printable.escape(f"note: {note}"))
    command_errors.print_problems(problems)


def _encode_json(value: Any) -> str:
    return json_lines.encode_json(value).decode()


def _print_json(
    settings: Mapping[str, tuple[Any, str]], problems: Sequence[Problem], notes: Sequence[str]
) -> None:
    report = {
        "ok": not problems,
        "settings": {key: {"value": value, "source": source} for key, (value, source) in settings.items()},
        "problems": problems,
        "notes": notes,
    }
    json_lines.print_json(report)
