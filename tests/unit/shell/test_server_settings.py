"""Tests of server settings from a file, environment variables and flags."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from backend_plugin.core.errors import InvalidSettings
from backend_plugin.shell import output_prefixes
from backend_plugin.shell.credentials import Tls
from backend_plugin.shell.settings import (
    ClusterKind,
    EffectiveSettings,
    EmbeddedSettings,
    ServerSettings,
    SettingsSources,
    load_settings,
)
from backend_plugin.shell.settings.loader import KEYS, get_flag, get_variable
from kfpytorch_common.quantity import parse

HOME = {"XDG_STATE_HOME": "/var/state"}
DEFAULTS = ServerSettings(
    host="127.0.0.1",
    metrics_host="127.0.0.1",
    state_dir=Path("/var/state/kfpytorch"),
    output_prefixes=(*output_prefixes.DEFAULT, "file:///"),
    namespace_template="*",
    accept_unsigned=True,
)
PATHS = ("state-dir", "token-file", "signing-keys-file", "embedded.code-dir", "embedded.pod-templates")
NUMBERS = ("port", "metrics.port", "max-concurrent-rpcs", "embedded.nodes", "embedded.gpus")
NAMES = ("namespaces", "excluded-namespaces", "embedded.pass-env")
# By key: the value in YAML, as a variable or flag, and the parsed value.
SAID: dict[str, tuple[Any, str, Any]] = {
    **dict.fromkeys(PATHS, ("/s", "/s", Path("/s"))),
    **dict.fromkeys(NUMBERS, (7, "7", 7)),
    **dict.fromkeys(NAMES, (["a-*", "b"], "a-*, b", ("a-*", "b"))),
    **dict.fromkeys(("host", "metrics.host"), ("::1", "::1", "::1")),
    **dict.fromkeys(("embedded.strict-images", "allow-unauthenticated"), (True, "true", True)),
    "embedded.durable": (True, "True", True),
    "accept-unsigned": (False, "false", False),
    "cluster": ("embedded", "embedded", ClusterKind.EMBEDDED),
    "max-receive-message-size": ("64Mi", "64Mi", 64 * 2**20),
    "max-send-message-size": (1_000_000, "1000000", 1_000_000),
    "drain-timeout": ("1m30s", "1m30s", timedelta(seconds=90)),
    "namespace-template": ("{{ domain }}", " {{ domain }}", "{{ domain }}"),
    "output-prefixes": (["s3://a", "/b"], "s3://a,/b", ("s3://a", "/b")),
    "log.level": ("DEBUG", "debug", "debug"),
    "log.format": ("text", "text", "text"),
    "embedded.cpus": (0.5, "500m", parse("500m")),
    "embedded.memory": ("2Gi", "2Gi", parse("2Gi")),
    "embedded.labels": ({"a": 1}, "a=1", {"a": "1"}),
    "embedded.images": ({"x:*": "/v"}, "x:*=/v", {"x:*": "/v"}),
    "kubernetes.kubeconfig": ("/a:/b", "/a:/b", "/a:/b"),
    "kubernetes.context": ("prod", "prod", "prod"),
    "kubernetes.orphan-scan-interval": ("90m", "90m", timedelta(minutes=90)),
}
TLS = ("certificate", "key", "client-ca", "client-names")


def nested(flat: Mapping[str, Any]) -> Mapping[str, Any]:
    section: dict[str, Any] = {}
    for key, value in flat.items():
        path, _, name = key.rpartition(".")
        (section.setdefault(path, {}) if path else section)[name] = value
    return section


def load(section: Any = None, environ: Mapping[str, str] = {}, **flags: Any) -> EffectiveSettings:
    given = {"environ": {**HOME, **environ}, "flags": flags.pop("flags", flags)}
    return load_settings(SettingsSources(section=section or {}, file="s.yaml", **given))


def problems(section: Any = None, environ: Mapping[str, str] = {}, **flags: Any) -> list[str]:
    with pytest.raises(InvalidSettings) as refusal:
        load(section, environ, **flags)
    return [f"{each.field}={each.value}: {each.message}; {each.remedy}" for each in refusal.value.problems]


def field(settings: ServerSettings, key: str) -> Any:
    """Return the value of the field with the name of the key; the fields of some sections are flat."""
    return attrgetter(re.sub(r"^(log|metrics)\.", r"\1-", key).replace("-", "_"))(settings)


def test_empty_configuration_means_the_defaults() -> None:
    assert load() == EffectiveSettings(settings=DEFAULTS, sources={})
    assert load({"port": None, "embedded": {"cpus": None}}) == load()


@pytest.mark.parametrize("key", SAID)
def test_each_setting_is_read_equally_from_file_variable_and_flag(key: str) -> None:
    yaml, text, meant = SAID[key]
    needs = {"cluster": "kubernetes"} if key.startswith("kubernetes.") else {}
    ways = (
        (load({**needs, **nested({key: yaml})}), "s.yaml"),
        (load(needs, environ={get_variable(key): text}), get_variable(key)),
        (load(needs, flags={key: text}), get_flag(key)),
    )
    for in_force, source in ways:
        assert field(in_force.settings, key) == meant
        assert in_force.sources == {**dict.fromkeys(needs, "s.yaml"), key: source}


def test_each_setting_has_a_test_row_and_unique_names() -> None:
    assert set(SAID) | {f"tls.{each}" for each in TLS} == set(KEYS)
    assert len({get_variable(key) for key in KEYS}) == len({get_flag(key) for key in KEYS}) == len(KEYS)


def test_flag_takes_precedence_over_variable_and_variable_over_file() -> None:
    section = {"port": 1, "max-concurrent-rpcs": 1, "drain-timeout": "1s"}
    in_force = load(section, {"KFPYTORCH_PORT": "2", "KFPYTORCH_MAX_CONCURRENT_RPCS": "2"}, port="3")
    expected = replace(DEFAULTS, port=3, max_concurrent_rpcs=2, drain_timeout=timedelta(seconds=1))
    variable = "KFPYTORCH_MAX_CONCURRENT_RPCS"
    sources = {"port": "--port", "max-concurrent-rpcs": variable, "drain-timeout": "s.yaml"}
    assert in_force == EffectiveSettings(settings=expected, sources=sources)


def test_tls_settings_may_come_from_several_sources() -> None:
    section = {"tls": {"certificate": "/c", "client-names": ["a", "b"]}}
    loaded = load(section, {"KFPYTORCH_TLS_KEY": "/k"}, flags={"tls.client-ca": "/a"})
    files = {"certificate": Path("/c"), "key": Path("/k"), "client_ca": Path("/a")}
    assert loaded.settings.tls == Tls(**files, client_names=("a", "b"))


def test_list_may_be_given_by_repeated_flags() -> None:
    loaded = load(flags={"output-prefixes": ("s3://a", "gs://b"), "embedded.images": ("a=/x", "b=/y=z")})
    assert loaded.settings.output_prefixes == ("s3://a", "gs://b")
    assert loaded.settings.embedded == EmbeddedSettings(images={"a": "/x", "b": "/y=z"})


def test_path_may_be_relative_or_start_with_the_home_directory(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    assert load(**{"state-dir": "~/s"}).settings.state_dir == Path("/home/me/s")
    assert load(**{"state-dir": "s"}).settings.state_dir == tmp_path / "s"
    assert load_settings(SettingsSources()).settings.state_dir == Path("/home/me/.local/state/kfpytorch")


def test_problems_of_all_sources_are_reported_together() -> None:
    assert problems(
        {"prot": 1, "tls": {"kee": "x"}, "embedded": 3, "metrics": {"port": 70_000}},
        {"KFPYTORCH_MAX_CONCURENT_RPCS": "1", "KFPYTORCH_DRAIN_TIMEOUT": "3"},
        host="0.0.0.0",
        cluster="embeded",
    ) == [
        "server.prot=1: is not a setting; did you mean port?",
        "server.tls.kee='x': is not a setting; did you mean key?",
        "server.embedded=3: is not a section; write keys with values",
        "server.metrics.port=70000: is not a number in the valid range; write a whole number from 0 to 65535",
        "KFPYTORCH_MAX_CONCURENT_RPCS='1': is not a setting; did you mean KFPYTORCH_MAX_CONCURRENT_RPCS?",
        "KFPYTORCH_DRAIN_TIMEOUT='3': is not a duration; write it as Go does, such as 90s, 3m or 1h30m",
        "--cluster='embeded': is not a valid value; write embedded or kubernetes",
        "--host='0.0.0.0': would give other hosts access, and clients of an embedded cluster can "
        "run commands as this user; write 127.0.0.1, ::1 or localhost",
    ]


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ("x", "server='x'"),
        ({3: 4}, "server.3=4"),
        *(({"port": value}, f"server.port={value}") for value in (-1, 1.5, True, [1])),
        ({"state-dir": ""}, "server.state-dir=''"),
        ({"state-dir": "~nobody-at-all/x"}, "server.state-dir='~nobody-at-all/x'"),
        ({"max-receive-message-size": "4Gi"}, "server.max-receive-message-size='4Gi'"),
        ({"max-receive-message-size": 10}, "server.max-receive-message-size=10"),
        ({"embedded": {"durable": "yes"}}, "server.embedded.durable='yes'"),
        ({"namespaces": 3}, "server.namespaces=3"),
        ({"output-prefixes": ["https://a/"]}, "server.output-prefixes=['https://a/']"),
        ({"embedded": {"images": "a"}}, "server.embedded.images='a'"),
        # Each of these needs another one.
        *(({"tls": {name: "/a"}}, f"server.tls.{name}='/a'") for name in TLS),
        ({"cluster": "kubernetes", "embedded": {"nodes": 4}}, "server.embedded.nodes=4"),
        ({"metrics": {"port": 8000}}, "server.metrics.port=8000"),
        ({"port": 9, "metrics": {"port": 9}}, "server.metrics.port=9"),
        ({"kubernetes": {"context": "prod"}}, "server.kubernetes.context='prod'"),
        ({"cluster": "kubernetes", "kubernetes": {"contxt": "prod"}}, "server.kubernetes.contxt='prod'"),
    ],
)
def test_invalid_setting_is_a_problem(section: Any, place: str) -> None:
    assert [each.partition(": ")[0] for each in problems(section)] == [place]


def test_only_a_kubernetes_cluster_is_served_at_hosts_other_than_loopback() -> None:
    for host in ("0.0.0.0", "::", "192.168.0.1", "localhost.example.org", ""):
        assert len(problems({"host": host})) == 1, host
    for host in ("127.0.0.2", "::1", "localhost"):
        assert load({"host": host}).settings.host == host
    assert load({"host": "192.168.0.1", "cluster": "kubernetes"}).settings.host == "192.168.0.1"
    settings = load({"cluster": "kubernetes"}).settings
    assert (settings.host, settings.metrics_host) == ("0.0.0.0", "0.0.0.0")
    assert "file:///" not in settings.output_prefixes


def test_variables_of_kubernetes_commands_and_workers_are_ignored() -> None:
    links = {
        "KFPYTORCH_PORT": "tcp://10.0.0.1:8000",
        "KFPYTORCH_SERVICE_HOST": "10.0.0.1",
        "KFPYTORCH_SERVICE_PORT": "8000",
        "KFPYTORCH_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "KFPYTORCH_PORT_8000_TCP_PORT": "8000",
    }
    assert load(environ=links) == load()
    assert load(environ={"KFPYTORCH_TOKEN": "x", "KFPYTORCH_LOG_DIR": "/x", "KFPYTORCH_POD": "y"}) == load()
    assert problems(environ={"KFPYTORCH_PORTS": "1"})
    # An empty variable counts as unset.
    assert load(environ={"KFPYTORCH_PORT": ""}, port=None) == load()
