"""``kfpytorch serve --check``: prints the effective settings with their sources, and all problems.

It checks the files and ports that the settings name, without a running server.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
import rich_click as click

from backend_plugin.cli import ends, lines, serve_platform, serve_settings
from backend_plugin.core import printable
from backend_plugin.core.errors import BackendError, InvalidSettings, Problem
from backend_plugin.core.quantity import Quantity
from backend_plugin.embedded.state_lock import find_foreign_files
from backend_plugin.shell import credentials, discovery, tracing
from backend_plugin.shell.credentials import KeyRing, Token
from backend_plugin.shell.prefixes import STORES, Prefixes
from backend_plugin.shell.server import not_bound
from backend_plugin.shell.settings import ClusterKind, Flags, InForce, ServerSettings
from backend_plugin.shell.settings.reading import KEYS

_DEFAULT: Final = "default"
_SECTIONS: Final = ("tls", "embedded", "kubernetes")


def check(file: str | None, flags: Flags, form: str) -> int:
    """Print the report; return 0 if a server would start with these settings."""
    told: InForce | None = None
    settings: Mapping[str, tuple[Any, str]] = {}
    try:
        configuration = serve_settings.read(file, flags)
    except InvalidSettings as refusal:
        problems: Sequence[Problem] = refusal.problems
    except ends.Unreadable as error:
        ends.refuse(error)
    else:
        told = configuration.server
        problems = [*_problems(told)]
        section = configuration.section
        of_platform = serve_platform.report(configuration.platform, section, file or "", _DEFAULT)
        settings = {**_in_force(told), **of_platform}
    notes = [*_notes(told.settings)] if told else []
    if form == "json":
        _print_json(settings, problems, notes)
    else:
        _print(settings, problems, notes)
    return ends.exit_code(problems)


def _in_force(told: InForce) -> Mapping[str, tuple[Any, str]]:
    return {key: (_value(told.settings, key), told.sources.get(key, _DEFAULT)) for key in KEYS}


def _value(settings: ServerSettings, key: str) -> Any:
    """Return the value of a key as JSON, or None if it is not set."""
    part, _, rest = key.replace("-", "_").partition(".")
    found = getattr(getattr(settings, part), rest, None) if part in _SECTIONS else None
    if found is None and part not in _SECTIONS:
        found = getattr(settings, f"{part}_{rest}" if rest else part)
    if isinstance(found, Quantity):
        return found.text
    if isinstance(found, timedelta):
        return f"{found.total_seconds():g}s"
    return str(found) if isinstance(found, Path) else msgspec.to_builtins(found, enc_hook=str)


def _problems(told: InForce) -> Iterator[Problem]:
    from backend_plugin.cli import clusters
    from backend_plugin.embedded import templates

    said = told.settings
    for key, attempt in (
        ("tls.certificate", lambda: said.tls and credentials.server_credentials(said.tls)),
        ("token-file", lambda: said.token_file and Token.in_file(said.token_file)),
        (
            "signing-keys-file",
            lambda: (
                said.signing_keys_file
                and KeyRing.in_file(said.signing_keys_file, accepts_unsigned=said.accept_unsigned)
            ),
        ),
        (
            "embedded.pod-templates",
            lambda: templates.read(clusters.embedded_options(said.embedded).pod_templates),
        ),
        ("kubernetes.kubeconfig", lambda: clusters.reachable(said)),
    ):
        try:
            attempt()
        except BackendError as error:
            yield _problem(
                told, key, str(error), "name files that this user can read, with the expected content"
            )
    if why_not := _unusable(said.state) or _foreign(said):
        yield _problem(told, "state", why_not, "name another directory")
    if why_not := _taken(said):
        yield _problem(
            told,
            "port",
            why_not,
            "stop the process that listens there, or set another port, or 0 for a free one",
        )
    for scheme, package in _missing(said):
        if "output-prefixes" in told.sources:
            yield _problem(told, "output-prefixes", f"{scheme}:// needs {package}", f"pip install {package}")
    try:
        with tracing.traced(os.environ):
            pass
    except tracing.CannotTrace as error:
        yield Problem(field="OTEL_*", value="", message=str(error), remedy="see OpenTelemetry's variables")


def _problem(told: InForce, key: str, message: str, remedy: str) -> Problem:
    return Problem(
        field=f"server.{key}", value=str(_value(told.settings, key)), message=message, remedy=remedy
    )


def _unusable(directory: Path) -> str | None:
    """Return why the directory cannot hold state, or None."""
    there = next(each for each in (directory, *directory.parents) if each.exists())
    if not there.is_dir():
        return f"{there} is not a directory"
    return (
        None if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written by user {os.geteuid()}"
    )


def _foreign(said: ServerSettings) -> str | None:
    """Return why an embedded cluster would not use the state directory."""
    return find_foreign_files(said.state) if said.cluster is ClusterKind.EMBEDDED else None


def _taken(said: ServerSettings) -> str | None:
    """Return why the port is not available, or None. A running server with the same state is replaced."""
    here = discovery.read(said.state)
    if said.port == 0 or (here and discovery.is_alive(here) and here.endpoint.endswith(f":{said.port}")):
        return None
    why_not = not_bound(said.host, said.port)
    return f"cannot listen on this port: {why_not}" if why_not else None


def _missing(said: ServerSettings) -> Iterator[tuple[str, str]]:
    for scheme in sorted(Prefixes(said.output_prefixes).schemes - {"file"}):
        if find_spec(STORES[scheme]) is None:
            yield scheme, STORES[scheme]


def _notes(said: ServerSettings) -> Iterator[str]:
    for scheme, package in _missing(said):
        yield f"{scheme}:// cannot be read: {package} is not installed"
    here = discovery.read(said.state)
    if here is not None and discovery.is_alive(here):
        yield f"a server with this state directory is running: {here.endpoint}, process {here.pid}"


def _print(
    settings: Mapping[str, tuple[Any, str]], problems: Sequence[Problem], notes: Sequence[str]
) -> None:
    width = max(map(len, settings), default=0)
    for key, (value, source) in settings.items():
        shown = "" if value in (None, [], {}) else value if isinstance(value, str) else _json(value)
        line = f"{key:<{width}}  {shown}  ({source})"
        click.echo(printable.escape(line).rstrip())
    for note in notes:
        click.echo(printable.escape(f"note: {note}"))
    for problem in problems:
        text = f"{problem.field}: {problem.value}\n  {problem.message}; {problem.remedy}"
        click.echo(printable.escape(text), err=True)


def _json(value: Any) -> str:
    return lines.as_json(value).decode()


def _print_json(
    settings: Mapping[str, tuple[Any, str]], problems: Sequence[Problem], notes: Sequence[str]
) -> None:
    said = {
        "ok": not problems,
        "settings": {key: {"value": value, "source": source} for key, (value, source) in settings.items()},
        "problems": [
            {"field": each.field, "value": each.value, "message": each.message, "remedy": each.remedy}
            for each in problems
        ],
        "notes": notes,
    }
    click.echo(msgspec.json.format(lines.as_json(said), indent=2))
