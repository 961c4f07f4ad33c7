"""The loader of server settings: merges all sources and collects all problems."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from backend_plugin.core.errors import InvalidSettings
from backend_plugin.core.settings import value_parsers
from backend_plugin.core.settings.engine import Parser, SettingsReader, convert_to_fields
from backend_plugin.shell import allowlist, logging_setup, output_prefixes
from backend_plugin.shell.credentials import Tls
from backend_plugin.shell.server_file import STATE, get_state_directory
from backend_plugin.shell.settings import machine_parsers
from backend_plugin.shell.settings.model import (
    ClusterKind,
    EmbeddedSettings,
    KubernetesSettings,
    ServerSettings,
    iter_contradictions,
)

Flags: TypeAlias = Mapping[str, Any]
"""The values of a command's flags, by the keys of `KEYS`; None and empty values are ignored."""

_VARIABLE: Final = "KFPYTORCH_"

KEYS: Final[Mapping[str, Parser]] = {
    "cluster": value_parsers.build_choice_parser(*(kind.value for kind in ClusterKind)),
    "host": value_parsers.text,
    "port": value_parsers.build_count_parser(0, 65_535),
    "state-dir": machine_parsers.parse_path,
    "tls.certificate": machine_parsers.parse_path,
    "tls.key": machine_parsers.parse_path,
    "tls.client-ca": machine_parsers.parse_path,
    "tls.client-names": value_parsers.names,
    "token-file": machine_parsers.parse_path,
    "signing-keys-file": machine_parsers.parse_path,
    "accept-unsigned": value_parsers.boolean,
    "allow-unauthenticated": value_parsers.boolean,
    "max-receive-message-size": value_parsers.message_size,
    "max-send-message-size": value_parsers.message_size,
    "max-concurrent-rpcs": value_parsers.build_count_parser(1),
    "drain-timeout": value_parsers.duration,
    "namespaces": value_parsers.names,
    "namespace-template": machine_parsers.parse_namespace_template,
    "excluded-namespaces": value_parsers.names,
    "output-prefixes": machine_parsers.parse_prefixes,
    "metrics.host": value_parsers.text,
    "metrics.port": value_parsers.build_count_parser(0, 65_535),
    "log.level": value_parsers.build_choice_parser(*logging_setup.LEVELS),
    "log.format": value_parsers.build_choice_parser(*logging_setup.FORMS),
    "embedded.nodes": value_parsers.build_count_parser(1, 1_000),
    "embedded.cpus": value_parsers.quantity,
    "embedded.memory": value_parsers.quantity,
    "embedded.gpus": value_parsers.build_count_parser(0, 1_000),
    "embedded.labels": value_parsers.text_map,
    "embedded.images": value_parsers.text_map,
    "embedded.strict-images": value_parsers.boolean,
    "embedded.durable": value_parsers.boolean,
    "embedded.code-dir": machine_parsers.parse_path,
    "embedded.pass-env": value_parsers.names,
    "embedded.pod-templates": machine_parsers.parse_path,
    "kubernetes.kubeconfig": value_parsers.text,
    "kubernetes.context": value_parsers.text,
    "kubernetes.orphan-scan-interval": value_parsers.duration,
}
"""The parser of every setting, by the key of the setting below ``server`` in the settings file."""

_DEFAULTS: Final[Mapping[ClusterKind, Mapping[str, Any]]] = {
    ClusterKind.EMBEDDED: {
        "host": "127.0.0.1",
        "metrics_host": "127.0.0.1",
        # A client of an embedded cluster can run commands as this user, so it can read all files anyway.
        "output_prefixes": (*output_prefixes.DEFAULT, "file:///"),
        # Jobs of an embedded cluster outlive an upgrade of its server, and only its user may call it.
        "accept_unsigned": True,
        # An embedded cluster does not contain namespaces of other users.
        "namespace_template": allowlist.ANY,
    },
    ClusterKind.KUBERNETES: {
        "host": "0.0.0.0",  # noqa: S104  (a pod is reached at its own address)
        "metrics_host": "0.0.0.0",  # noqa: S104
        "output_prefixes": output_prefixes.DEFAULT,
        "accept_unsigned": False,
        "namespace_template": allowlist.FLYTES,
    },
}
"""The defaults of each kind of cluster, by field of `ServerSettings`; other defaults are in the class."""

# Environment variables that commands, workers and their tests read.
_OF_OTHERS: Final = frozenset(
    f"{_VARIABLE}{name}"
    for name in (
        *("CA", "CERT", "FORK", "KEY", "LOCAL", "LOG_DIR", "POD", "PRESTART"),
        *("SERVER", "TLS_SERVER_NAME", "SETTINGS", "TOKEN", "VERBOSE"),
    )
)
# Kubernetes adds variables with such values to every pod in a namespace with a Service named kfpytorch.
_SERVICE_LINKS: Final = ("tcp://", "udp://", "sctp://")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSources:
    """The sources of settings, from the lowest to the highest precedence."""

    section: Mapping[str, Any] = field(default_factory=dict)
    """The section ``server`` of the settings file."""
    file: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    flags: Flags = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSettings:
    """The effective settings of a server, with the source of each."""

    settings: ServerSettings
    sources: Mapping[str, str]
    """The file, environment variable or flag of each setting, by key; defaults are not listed."""


@dataclass(slots=True)
class _ServerReader(SettingsReader):
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """The name of each setting in its source (file, environment variable or flag), by key."""

    def add_value(self, key: str, value: Any, name: str, source: str) -> None:
        """Parse a value of the setting `key`, and replace an earlier one; `name` is its name in `source`."""
        self.read_value(self.values, key, name, value, KEYS[key])
        self.sources[key], self.names[key] = source, name


def load_settings(sources: SettingsSources) -> EffectiveSettings:
    """Return the effective settings from all sources.

    Raises:
        InvalidSettings: If settings are unknown, invalid or contradictory; the error contains all of them.
    """
    reading = _ServerReader()
    _read_section(sources, reading)
    _read_environ(sources.environ, reading)
    for key, value in sources.flags.items():
        if value not in (None, (), ""):
            flag = get_flag(key)
            reading.add_value(key, value, flag, flag)
    kind = ClusterKind(reading.values.get("cluster", ClusterKind.EMBEDDED.value))
    for key, message, remedy in iter_contradictions(reading.values, kind):
        name = reading.names[key]
        reading.add_problem(name, reading.raw[name], message, remedy)
    if "state-dir" not in reading.values:
        _set_default_state(reading, sources.environ)
    if reading.problems:
        raise InvalidSettings(*reading.problems)
    return EffectiveSettings(settings=_build_settings(reading.values, kind), sources=reading.sources)


def get_variable(key: str) -> str:
    """Return the name of the environment variable of a key, such as ``KFPYTORCH_TLS_CLIENT_CA``."""
    return _VARIABLE + key.replace(".", "_").replace("-", "_").upper()


def get_flag(key: str) -> str:
    """Return the flag of a key, such as ``--tls-client-ca``, or ``--nodes`` for ``embedded.nodes``."""
    for kind in ClusterKind:
        key = key.removeprefix(f"{kind.value}.")
    return "--" + key.replace(".", "-")


def _group_parsers() -> dict[str, Any]:
    """Return the parsers of all settings, nested as in the settings file: ``{"tls": {"key": ...}}``."""
    parsers: dict[str, Any] = {}
    for key, parser in KEYS.items():
        part, _, name = key.rpartition(".")
        (parsers.setdefault(part, {}) if part else parsers)[name] = parser
    return parsers


def _read_section(sources: SettingsSources, reading: _ServerReader) -> None:
    parsers = _group_parsers()
    for name, value in reading.read_section(sources.section, parsers, "server.").items():
        is_part = isinstance(parsers[name], Mapping)
        reading.values |= {f"{name}.{key}": each for key, each in value.items()} if is_part else {name: value}
    reading.names = {key: f"server.{key}" for key in reading.values}
    reading.sources = dict.fromkeys(reading.values, sources.file)


def _read_environ(environ: Mapping[str, str], reading: _ServerReader) -> None:
    keys = {get_variable(key): key for key in KEYS}
    for name, value in environ.items():
        if not _can_be_setting(name, value):
            continue
        if name in keys:
            reading.add_value(keys[name], value, name, name)
        elif near := get_close_matches(name, keys, n=1, cutoff=0.85):
            reading.add_problem(name, value, "is not a setting", f"did you mean {near[0]}?")


def _can_be_setting(name: str, value: str) -> bool:
    """True if the variable may be a setting: not empty, not of other programs, not added by Kubernetes."""
    if not value or not name.startswith(_VARIABLE) or name in _OF_OTHERS:
        return False
    if name == f"{_VARIABLE}PORT":
        return not value.startswith(_SERVICE_LINKS)
    return not name.startswith((f"{_VARIABLE}SERVICE_", f"{_VARIABLE}PORT_"))


def _set_default_state(reading: _ServerReader, environ: Mapping[str, str]) -> None:
    try:
        directory = get_state_directory({name: value for name, value in environ.items() if name != STATE})
    except RuntimeError:  # The user of this process has neither a name nor a home directory.
        message = "has no default, because the user has no home directory"
        reading.add_problem("server.state-dir", "", message, f"set {STATE}")
    else:
        reading.values["state-dir"] = directory


def _build_settings(values: Mapping[str, Any], kind: ClusterKind) -> ServerSettings:
    parts: dict[str, dict[str, Any]] = {
        part: convert_to_fields(
            {key.removeprefix(f"{part}."): each for key, each in values.items() if key.startswith(f"{part}.")}
        )
        for part in ("tls", "embedded", "kubernetes")
    }
    outer = {key: each for key, each in values.items() if key.partition(".")[0] not in parts}
    return ServerSettings(
        **{
            **_DEFAULTS[kind],
            **convert_to_fields(outer),
            "cluster": kind,
            "tls": Tls(**parts["tls"]) if parts["tls"] else None,
            "embedded": EmbeddedSettings(**parts["embedded"]),
            "kubernetes": KubernetesSettings(**parts["kubernetes"]),
        }
    )
