"""The loader of server settings: merges all sources and collects all problems.

To add a setting, add a field in `model` and a row in `KEYS`.
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from backend_plugin.core.errors import InvalidSettings, Problem
from backend_plugin.core.settings import value_parsers as platform
from backend_plugin.core.settings.value_parsers import InvalidSettingValue, Read
from backend_plugin.shell import allowlist, logging_setup, output_prefixes
from backend_plugin.shell.credentials import Tls
from backend_plugin.shell.server_file import STATE, get_state_directory
from backend_plugin.shell.settings import value_parsers
from backend_plugin.shell.settings.model import (
    ClusterKind,
    EmbeddedSettings,
    KubernetesSettings,
    ServerSettings,
)

Flags: TypeAlias = Mapping[str, Any]
"""The flags of a command by the keys of `KEYS`; None and empty values are ignored."""

_LONGEST_SHOWN: Final = 80
_VARIABLE: Final = "KFPYTORCH_"

KEYS: Final[Mapping[str, Read]] = {
    "cluster": value_parsers.build_choice_parser(*(kind.value for kind in ClusterKind)),
    "host": platform.text,
    "port": value_parsers.build_count_parser(0, 65_535),
    "state-dir": value_parsers.parse_path,
    "tls.certificate": value_parsers.parse_path,
    "tls.key": value_parsers.parse_path,
    "tls.client-ca": value_parsers.parse_path,
    "tls.client-names": value_parsers.parse_list,
    "token-file": value_parsers.parse_path,
    "signing-keys-file": value_parsers.parse_path,
    "accept-unsigned": value_parsers.parse_boolean,
    "allow-unauthenticated": value_parsers.parse_boolean,
    "max-receive-message-size": value_parsers.parse_size,
    "max-send-message-size": value_parsers.parse_size,
    "max-concurrent-rpcs": value_parsers.build_count_parser(1),
    "drain-timeout": platform.duration,
    "namespaces": value_parsers.parse_list,
    "namespace-template": value_parsers.parse_namespace_template,
    "excluded-namespaces": value_parsers.parse_list,
    "output-prefixes": value_parsers.parse_prefixes,
    "metrics.host": platform.text,
    "metrics.port": value_parsers.build_count_parser(0, 65_535),
    "log.level": value_parsers.build_choice_parser(*logging_setup.LEVELS),
    "log.format": value_parsers.build_choice_parser(*logging_setup.FORMS),
    "embedded.nodes": value_parsers.build_count_parser(1, 1_000),
    "embedded.cpus": platform.quantity,
    "embedded.memory": platform.quantity,
    "embedded.gpus": value_parsers.build_count_parser(0, 1_000),
    "embedded.labels": value_parsers.parse_text_map,
    "embedded.images": value_parsers.parse_text_map,
    "embedded.strict-images": value_parsers.parse_boolean,
    "embedded.durable": value_parsers.parse_boolean,
    "embedded.code-dir": value_parsers.parse_path,
    "embedded.pass-env": value_parsers.parse_list,
    "embedded.pod-templates": value_parsers.parse_path,
    "kubernetes.kubeconfig": platform.text,
    "kubernetes.context": platform.text,
    "kubernetes.orphan-scan-interval": platform.duration,
}
"""The parser of every setting, by its key below ``server`` in the file."""

# Variables that commands, workers and their tests read.
_OF_OTHERS: Final = frozenset(
    f"{_VARIABLE}{name}"
    for name in (
        *("CA", "CERT", "FORK", "KEY", "LOCAL", "LOG_DIR", "POD", "PRESTART"),
        *("SERVER", "TLS_SERVER_NAME", "SETTINGS", "TOKEN", "VERBOSE"),
    )
)
# Kubernetes adds these variables to every pod in a namespace with a Service named kfpytorch.
_SERVICE_LINKS: Final = ("tcp://", "udp://", "sctp://")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSources:
    """The sources of settings, from the lowest to the highest precedence."""

    section: Mapping[str, Any] = field(default_factory=dict)
    """The section ``server`` of the file."""
    file: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    flags: Flags = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSettings:
    """The effective settings of a server, with the source of each."""

    settings: ServerSettings
    sources: Mapping[str, str]
    """The file, variable or flag by key; defaults are not listed."""


@dataclass(slots=True)
class _SettingsReader:
    """The values and problems that have been read so far."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    said: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """The name of the setting in its source and the raw value, by key."""
    problems: list[Problem] = field(default_factory=list)

    def add_value(self, key: str, value: Any, name: str, source: str) -> None:
        """Parse one value; it replaces an earlier value of the same key."""
        try:
            self.values[key] = KEYS[key](value)
        except InvalidSettingValue as wrong:
            self.add_problem(name, value, wrong)
        self.sources[key], self.said[key] = source, (name, value)

    def add_problem(self, name: str, value: Any, wrong: InvalidSettingValue) -> None:
        """Add a problem."""
        shown = repr(value)[:_LONGEST_SHOWN]
        self.problems.append(Problem(field=name, value=shown, message=wrong.message, remedy=wrong.remedy))


def load_settings(sources: SettingsSources) -> EffectiveSettings:
    """Return the effective settings.

    Raises:
        InvalidSettings: With all unknown, invalid and contradictory settings.
    """
    reading = _SettingsReader()
    _read_section(sources.section, "", reading, sources.file)
    _read_environ(sources.environ, reading)
    for key, value in sources.flags.items():
        if value not in (None, (), ""):
            flag = get_flag(key)
            reading.add_value(key, value, flag, flag)
    kind = ClusterKind(reading.values.get("cluster", ClusterKind.EMBEDDED.value))
    _check_contradictions(reading, kind)
    if "state-dir" not in reading.values:
        _set_default_state(reading, sources.environ)
    if reading.problems:
        raise InvalidSettings(*reading.problems)
    return EffectiveSettings(settings=_build_settings(reading.values, kind), sources=reading.sources)


def get_variable(key: str) -> str:
    """Return the environment variable of a key, such as ``KFPYTORCH_TLS_CLIENT_CA``."""
    return _VARIABLE + key.replace(".", "_").replace("-", "_").upper()


def get_flag(key: str) -> str:
    """Return the flag of a key, such as ``--tls-client-ca``, or ``--nodes`` for ``embedded.nodes``."""
    for kind in ClusterKind:
        key = key.removeprefix(f"{kind.value}.")
    return "--" + key.replace(".", "-")


def _read_section(section: Any, path: str, reading: _SettingsReader, file: str) -> None:
    if not isinstance(section, Mapping):
        wrong = InvalidSettingValue("is not a section", "write keys with values")
        reading.add_problem(f"server.{path}".rstrip("."), section, wrong)
        return
    known = [key.removeprefix(path).partition(".")[0] for key in KEYS if key.startswith(path)]
    for name, value in section.items():
        key = f"{path}{name}"
        if value is None:
            continue  # An empty value in YAML leaves the setting unset.
        if key in KEYS:
            reading.add_value(key, value, f"server.{key}", file)
        elif name in known:
            _read_section(value, f"{key}.", reading, file)
        else:
            reading.add_problem(
                f"server.{key}",
                value,
                InvalidSettingValue("is not a setting", _suggest_name(str(name), known)),
            )


def _read_environ(environ: Mapping[str, str], reading: _SettingsReader) -> None:
    keys = {get_variable(key): key for key in KEYS}
    for name, value in _iter_own_variables(environ):
        if name in keys:
            reading.add_value(keys[name], value, name, name)
        elif near := get_close_matches(name, keys, n=1, cutoff=0.85):
            reading.add_problem(
                name, value, InvalidSettingValue("is not a setting", f"did you mean {near[0]}?")
            )


def _iter_own_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if not name.startswith(_VARIABLE) or name in _OF_OTHERS or not value:
            continue
        if name.startswith((f"{_VARIABLE}SERVICE_", f"{_VARIABLE}PORT")) and (
            value.startswith(_SERVICE_LINKS) or name != f"{_VARIABLE}PORT"
        ):
            continue
        yield name, value


def _suggest_name(name: str, known: Sequence[str]) -> str:
    nearest = get_close_matches(name, known, n=1)
    return f"did you mean {nearest[0]}?" if nearest else "remove it"


def _set_default_state(reading: _SettingsReader, environ: Mapping[str, str]) -> None:
    try:
        found = get_state_directory({name: value for name, value in environ.items() if name != STATE})
    except RuntimeError:  # The user of this process has neither a name nor a home directory.
        reading.add_problem(
            "server.state-dir",
            "",
            InvalidSettingValue("has no default, because the user has no home directory", f"set {STATE}"),
        )
    else:
        reading.values["state-dir"] = found


def _build_settings(values: Mapping[str, Any], kind: ClusterKind) -> ServerSettings:
    embedded = kind is ClusterKind.EMBEDDED
    inner = _select_fields(values, "embedded.")
    outer = {
        name: value
        for name, value in _select_fields(values).items()
        if not name.startswith(("tls_", "embedded_", "kubernetes_"))
    }
    defaults: dict[str, Any] = {
        "host": "127.0.0.1" if embedded else "0.0.0.0",  # noqa: S104  (a pod is reached at its own address)
        "metrics_host": "127.0.0.1" if embedded else "0.0.0.0",  # noqa: S104
        # A client of an embedded cluster can run commands as this user, so it can read all files anyway.
        "output_prefixes": (*output_prefixes.DEFAULT, "file:///") if embedded else output_prefixes.DEFAULT,
        # Jobs of an embedded cluster outlive an upgrade of its server, and only its user may call it.
        "accept_unsigned": embedded,
        # An embedded cluster does not contain namespaces of other users.
        "namespace_template": allowlist.ANY if embedded else allowlist.FLYTES,
    }
    return ServerSettings(
        **{
            **defaults,
            **outer,
            "cluster": kind,
            "tls": Tls(**tls) if (tls := _select_fields(values, "tls.")) else None,
            "embedded": EmbeddedSettings(**inner),
            "kubernetes": KubernetesSettings(**_select_fields(values, "kubernetes.")),
        }
    )


def _select_fields(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values below a path, by field name."""
    return {
        key.removeprefix(path).replace(".", "_").replace("-", "_"): value
        for key, value in values.items()
        if key.startswith(path)
    }


def _check_contradictions(reading: _SettingsReader, kind: ClusterKind) -> None:
    """Check for settings that contradict each other."""
    values = reading.values

    def add_contradiction(key: str, message: str, remedy: str) -> None:
        reading.add_problem(*reading.said[key], InvalidSettingValue(message, remedy))

    for needs, needed in (
        ("tls.certificate", "tls.key"),
        ("tls.key", "tls.certificate"),
        ("tls.client-ca", "tls.certificate"),
        ("tls.client-names", "tls.client-ca"),
    ):
        if needs in values and needed not in values:
            add_contradiction(needs, f"has no effect without {needed}", f"also set {needed}")
    for other in ClusterKind:
        for key in values:
            if other is not kind and key.startswith(f"{other.value}."):
                add_contradiction(
                    key, f"has no effect if the cluster is {kind.value}", f"write cluster: {other.value}"
                )
    if kind is ClusterKind.EMBEDDED and "host" in values and not _is_loopback(values["host"]):
        add_contradiction(
            "host",
            "would give other hosts access, and clients of an embedded cluster can run commands as this user",
            "write 127.0.0.1, ::1 or localhost",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
