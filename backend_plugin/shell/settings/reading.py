"""The loader of server settings: merges all sources and collects all problems.

To add a setting, add a field in `values` and a row in `KEYS`.
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from backend_plugin.core.errors import InvalidSettings, Problem
from backend_plugin.core.settings import kinds as platform
from backend_plugin.core.settings.kinds import Read, Wrong
from backend_plugin.shell import allowed, logs, prefixes
from backend_plugin.shell.credentials import Tls
from backend_plugin.shell.discovery import STATE, state_directory
from backend_plugin.shell.settings import kinds
from backend_plugin.shell.settings.values import ClusterKind, Embedded, Kubernetes, ServerSettings

Flags: TypeAlias = Mapping[str, Any]
"""The flags of a command by the keys of `KEYS`; None and empty values are ignored."""

_LONGEST_SHOWN: Final = 80
_VARIABLE: Final = "KFPYTORCH_"

KEYS: Final[Mapping[str, Read]] = {
    "cluster": kinds.one_of(*(kind.value for kind in ClusterKind)),
    "host": platform.text,
    "port": kinds.count(0, 65_535),
    "state": kinds.path,
    "tls.certificate": kinds.path,
    "tls.key": kinds.path,
    "tls.client-ca": kinds.path,
    "tls.client-names": kinds.several,
    "token-file": kinds.path,
    "signing-keys-file": kinds.path,
    "accept-unsigned": kinds.boolean,
    "open-to-all": kinds.boolean,
    "receive-limit": kinds.size,
    "send-limit": kinds.size,
    "concurrency": kinds.count(1),
    "drain": platform.duration,
    "namespaces": kinds.several,
    "namespace-template": kinds.namespace_template,
    "refused-namespaces": kinds.several,
    "output-prefixes": kinds.prefixes,
    "metrics.host": platform.text,
    "metrics.port": kinds.count(0, 65_535),
    "log.level": kinds.one_of(*logs.LEVELS),
    "log.format": kinds.one_of(*logs.FORMS),
    "embedded.nodes": kinds.count(1, 1_000),
    "embedded.cpus": platform.quantity,
    "embedded.memory": platform.quantity,
    "embedded.gpus": kinds.count(0, 1_000),
    "embedded.labels": kinds.texts,
    "embedded.images": kinds.texts,
    "embedded.strict-images": kinds.boolean,
    "embedded.durable": kinds.boolean,
    "embedded.code": kinds.path,
    "embedded.pass-env": kinds.several,
    "embedded.pod-templates": kinds.path,
    "kubernetes.kubeconfig": platform.text,
    "kubernetes.context": platform.text,
    "kubernetes.orphans-every": platform.duration,
}
"""The parser of every setting, by its key below ``server`` in the file."""

# Variables that commands, workers and their tests read.
_OF_OTHERS: Final = frozenset(
    f"{_VARIABLE}{name}"
    for name in (
        *("CA", "CERT", "FORK", "KEY", "LOCAL", "LOG_DIR", "POD", "PRESTART"),
        *("SERVER", "SERVER_NAME", "SETTINGS", "TOKEN", "VERBOSE"),
    )
)
# Kubernetes adds these variables to every pod in a namespace with a Service named kfpytorch.
_SERVICE_LINKS: Final = ("tcp://", "udp://", "sctp://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of settings, from the lowest to the highest precedence."""

    section: Mapping[str, Any] = field(default_factory=dict)
    """The section ``server`` of the file."""
    file: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    flags: Flags = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """The effective settings of a server, with the source of each."""

    settings: ServerSettings
    sources: Mapping[str, str]
    """The file, variable or flag by key; defaults are not listed."""


@dataclass(slots=True)
class _Reading:
    """The values and problems that have been read so far."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    said: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """The name of the setting in its source and the raw value, by key."""
    problems: list[Problem] = field(default_factory=list)

    def take(self, key: str, value: Any, name: str, source: str) -> None:
        """Parse one value; it replaces an earlier value of the same key."""
        try:
            self.values[key] = KEYS[key](value)
        except Wrong as wrong:
            self.wrong(name, value, wrong)
        self.sources[key], self.said[key] = source, (name, value)

    def wrong(self, name: str, value: Any, wrong: Wrong) -> None:
        """Add a problem."""
        shown = repr(value)[:_LONGEST_SHOWN]
        self.problems.append(Problem(field=name, value=shown, message=wrong.message, remedy=wrong.remedy))


def read(sources: Sources) -> InForce:
    """Return the effective settings.

    Raises:
        InvalidSettings: With all unknown, invalid and contradictory settings.
    """
    reading = _Reading()
    _read_section(sources.section, "", reading, sources.file)
    _read_environ(sources.environ, reading)
    for key, value in sources.flags.items():
        if value not in (None, (), ""):
            flag = flag_of(key)
            reading.take(key, value, flag, flag)
    kind = ClusterKind(reading.values.get("cluster", ClusterKind.EMBEDDED.value))
    _check(reading, kind)
    if "state" not in reading.values:
        _default_state(reading, sources.environ)
    if reading.problems:
        raise InvalidSettings(*reading.problems)
    return InForce(settings=_settings(reading.values, kind), sources=reading.sources)


def variable_of(key: str) -> str:
    """Return the environment variable of a key, such as ``KFPYTORCH_TLS_CLIENT_CA``."""
    return _VARIABLE + key.replace(".", "_").replace("-", "_").upper()


def flag_of(key: str) -> str:
    """Return the flag of a key, such as ``--tls-client-ca``, or ``--nodes`` for ``embedded.nodes``."""
    for kind in ClusterKind:
        key = key.removeprefix(f"{kind.value}.")
    return "--" + key.replace(".", "-")


def _read_section(section: Any, path: str, reading: _Reading, file: str) -> None:
    if not isinstance(section, Mapping):
        wrong = Wrong("is not a section", "write keys with values")
        reading.wrong(f"server.{path}".rstrip("."), section, wrong)
        return
    known = [key.removeprefix(path).partition(".")[0] for key in KEYS if key.startswith(path)]
    for name, value in section.items():
        key = f"{path}{name}"
        if value is None:
            continue  # An empty value in YAML leaves the setting unset.
        if key in KEYS:
            reading.take(key, value, f"server.{key}", file)
        elif name in known:
            _read_section(value, f"{key}.", reading, file)
        else:
            reading.wrong(f"server.{key}", value, Wrong("is not a setting", _nearest(str(name), known)))


def _read_environ(environ: Mapping[str, str], reading: _Reading) -> None:
    keys = {variable_of(key): key for key in KEYS}
    for name, value in _ours(environ):
        if name in keys:
            reading.take(keys[name], value, name, name)
        elif near := get_close_matches(name, keys, n=1, cutoff=0.85):
            reading.wrong(name, value, Wrong("is not a setting", f"did you mean {near[0]}?"))


def _ours(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if not name.startswith(_VARIABLE) or name in _OF_OTHERS or not value:
            continue
        if name.startswith((f"{_VARIABLE}SERVICE_", f"{_VARIABLE}PORT")) and (
            value.startswith(_SERVICE_LINKS) or name != f"{_VARIABLE}PORT"
        ):
            continue
        yield name, value


def _nearest(name: str, known: Sequence[str]) -> str:
    nearest = get_close_matches(name, known, n=1)
    return f"did you mean {nearest[0]}?" if nearest else "remove it"


def _default_state(reading: _Reading, environ: Mapping[str, str]) -> None:
    try:
        found = state_directory({name: value for name, value in environ.items() if name != STATE})
    except RuntimeError:  # The user of this process has neither a name nor a home directory.
        reading.wrong(
            "server.state",
            "",
            Wrong("has no default, because the user has no home directory", f"set {STATE}"),
        )
    else:
        reading.values["state"] = found


def _settings(values: Mapping[str, Any], kind: ClusterKind) -> ServerSettings:
    embedded = kind is ClusterKind.EMBEDDED
    inner = _fields(values, "embedded.")
    outer = {
        name: value
        for name, value in _fields(values).items()
        if not name.startswith(("tls_", "embedded_", "kubernetes_"))
    }
    defaults: dict[str, Any] = {
        "host": "127.0.0.1" if embedded else "0.0.0.0",  # noqa: S104  (a pod is reached at its own address)
        "metrics_host": "127.0.0.1" if embedded else "0.0.0.0",  # noqa: S104
        # A client of an embedded cluster can run commands as this user, so it can read all files anyway.
        "output_prefixes": (*prefixes.DEFAULT, "file:///") if embedded else prefixes.DEFAULT,
        # Jobs of an embedded cluster outlive an upgrade of its server, and only its user may call it.
        "accept_unsigned": embedded,
        # An embedded cluster does not contain namespaces of other users.
        "namespace_template": allowed.ANY if embedded else allowed.FLYTES,
    }
    return ServerSettings(
        **{
            **defaults,
            **outer,
            "cluster": kind,
            "tls": Tls(**tls) if (tls := _fields(values, "tls.")) else None,
            "embedded": Embedded(**inner),
            "kubernetes": Kubernetes(**_fields(values, "kubernetes.")),
        }
    )


def _fields(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values below a path, by field name."""
    return {
        key.removeprefix(path).replace(".", "_").replace("-", "_"): value
        for key, value in values.items()
        if key.startswith(path)
    }


def _check(reading: _Reading, kind: ClusterKind) -> None:
    """Check for settings that contradict each other."""
    values = reading.values

    def wrong(key: str, message: str, remedy: str) -> None:
        reading.wrong(*reading.said[key], Wrong(message, remedy))

    for needs, needed in (
        ("tls.certificate", "tls.key"),
        ("tls.key", "tls.certificate"),
        ("tls.client-ca", "tls.certificate"),
        ("tls.client-names", "tls.client-ca"),
    ):
        if needs in values and needed not in values:
            wrong(needs, f"has no effect without {needed}", f"also set {needed}")
    for other in ClusterKind:
        for key in values:
            if other is not kind and key.startswith(f"{other.value}."):
                wrong(key, f"has no effect if the cluster is {kind.value}", f"write cluster: {other.value}")
    if kind is ClusterKind.EMBEDDED and "host" in values and not _is_loopback(values["host"]):
        wrong(
            "host",
            "would give other hosts access, and clients of an embedded cluster can run commands as this user",
            "write 127.0.0.1, ::1 or localhost",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
