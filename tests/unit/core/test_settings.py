# ruff: noqa: E501 - a row a case
from datetime import timedelta
from operator import attrgetter

import pytest

from backend_plugin.core import settings
from backend_plugin.core.errors import InvalidSettings, Problem
from backend_plugin.core.settings import PluginSettings, Settings, TaskResources, loader, platform_parsers
from backend_plugin.core.settings import value_parsers as parsers
from backend_plugin.core.settings.engine import InvalidSettingValue
from backend_plugin.core.settings.judging import JudgingSettings, LogLinkSettings, LogTemplate
from kfpytorch_common.causes import Cause
from kfpytorch_common.quantity import parse

TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
# An operator of Kubernetes 1.35.
OF_NUMBER = {"key": "speed", "operator": "Gt", "value": "5", "effect": "NoSchedule"}
REQUIREMENT = {"key": "spot", "operator": "In", "values": ["true"]}

# The value from the YAML file and the parsed value.
SAID = {
    "default-annotations": ({"a": "b"}, {"a": "b"}),
    "default-labels": ([{"a": 1}, {"B": True}], {"a": "1", "B": "true"}),
    "default-env-vars": ([{"A": "b"}, {"C": 0.5}], {"A": "b", "C": "0.5"}),
    "default-env-from-configmaps": (["a"], ("a",)),
    "default-env-from-secrets": (["a"], ("a",)),
    "default-cpus": (0.5, parse("500m")),
    "default-memory": ("1024Mi", parse("1Gi")),
    "default-tolerations": ([TOLERATION], [TOLERATION]),
    "default-node-selector": ({"a": "b"}, {"a": "b"}),
    "default-affinity": ({"nodeAffinity": {}}, {"nodeAffinity": {}}),
    "scheduler-name": ("volcano", "volcano"),
    "interruptible-tolerations": ([OF_NUMBER], [OF_NUMBER]),
    "interruptible-node-selector": ({"a": "b"}, {"a": "b"}),
    "interruptible-node-selector-requirement": (REQUIREMENT, REQUIREMENT),
    "non-interruptible-node-selector-requirement": (REQUIREMENT, REQUIREMENT),
    "resource-tolerations": ([{"nvidia.com/gpu": [TOLERATION]}], {"nvidia.com/gpu": [TOLERATION]}),
    "image-pull-policy": ("Always", "Always"),
    "gpu-device-node-label": ("device", "device"),
    "gpu-partition-size-node-label": ("size", "size"),
    "gpu-unpartitioned-node-selector-requirement": (REQUIREMENT, REQUIREMENT),
    "gpu-unpartitioned-toleration": (TOLERATION, TOLERATION),
    "gpu-resource-name": ("amd.com/gpu", "amd.com/gpu"),
    # The parts of a pod are normalized like Kubernetes does.
    "default-pod-security-context": ({"runAsUser": 0.0, "fsGroup": None}, {"runAsUser": 0}),
    "default-security-context": ({"privileged": False}, {"privileged": False}),
    "enable-host-networking-pod": (False, False),
    "default-pod-dns-config": ({"options": [{"name": "x"}]}, {"options": [{"name": "x"}]}),
    "default-pod-template-name": ("gang", "gang"),
    "add-tolerations-for-extended-resources": (["a/b"], ("a/b",)),
}
AS_ROOT = {"runAsUser": "root"}
NODES = "interruptible-node-selector-requirement"
TYPO = {"effect": "NoSchedul"}
COUNT = parsers.build_count_parser(1, 9)
CHOICE = parsers.build_choice_parser("a", "b")
BY_CAUSE = "kfpytorch.timeouts.queue-timeout-by-cause"


def test_empty_settings_are_flyte_defaults():
    assert settings.read({}) == Settings()
    assert settings.read(dict.fromkeys(SAID)) == Settings()
    assert settings.read({"default-annotations": {}, "default-tolerations": []}) == Settings()
    # Settings of other Flyte plugins are ignored.
    assert settings.read({"co-pilot": {"image": "x"}, "inject-finalizer": True}) == Settings()


@pytest.mark.parametrize("key", SAID)
def test_each_setting_is_read_under_its_flyte_name(key):
    value, meant = SAID[key]
    assert settings.read({key: value}) == Settings(**{key.replace("-", "_"): meant})


def test_each_setting_has_a_test_row():
    rows = {key.replace("-", "_") for key in SAID}
    assert rows | {"kfpytorch", "judging", "logs"} == set(Settings.__dataclass_fields__)


def reject(section) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSettings) as refusal:
        settings.read(section)
    return refusal.value.problems


def test_unknown_pod_field_in_a_setting_is_rejected_with_its_path():
    terms = "requiredDuringSchedulingIgnoredDuringExecution"
    (found,) = reject({"default-affinity": {"podAffinity": {terms: [{}, {"topology": "x"}]}}})
    path = f"podAffinity.{terms}[1].topology"
    assert (found.field, found.message) == ("default-affinity", f"has the unknown field {path}")


def test_long_value_is_truncated_in_the_problem():
    (problem,) = reject({"default-tolerations": [{"key": "a", "operator": "x" * 5000}]})
    assert len(str(problem)) < 400


def test_task_resources_of_the_platform_are_read():
    resources = {"defaults": {"cpu": 2}, "limits": [{"gpu": "8"}, {"memory": "1Ti"}]}
    read = settings.read({"gpu-resource-name": "amd.com/gpu", "kfpytorch": {"task-resources": resources}})
    limits = {"amd.com/gpu": parse("8"), "memory": parse("1Ti")}
    expected = TaskResources(defaults={"cpu": parse("2")}, limits=limits)
    assert read.kfpytorch == PluginSettings(task_resources=expected)


def test_timeouts_are_read_from_flyte_settings_and_ours():
    section = {
        "pod-pending-timeout": "1h30m",
        "image-pull-backoff-grace-period": "0",
        "create-container-error-grace-period": "0s",
        "create-container-config-error-grace-period": "1.5ms",
        "kfpytorch": {
            "timeouts": {"queue-timeout": "90s"},
            "exit-codes": {3: "oom-gpu", "4": "system-error"},
        },
    }
    assert settings.read(section).judging == JudgingSettings(
        pending_timeout=timedelta(minutes=90),
        image_pull_backoff_grace_period=timedelta(0),
        create_container_error_grace_period=timedelta(0),
        create_container_config_error_grace_period=timedelta(microseconds=1500),
        queue_timeout=timedelta(seconds=90),
        exit_codes={3: Cause.OOM_GPU, 4: Cause.SYSTEM_ERROR},
    )


def test_log_links_are_read_from_our_settings():
    section = {
        "kubernetes-enabled": True,
        # Flyte ignores `scheme` now, but existing files may contain it.
        "templates": [{"name": "a", "templateUris": ["u"], "showWhilePending": True, "scheme": "Pod"}],
        "dynamic-log-links": [{"vscode": {"displayName": "VS Code"}}],
    }
    assert settings.read({"kfpytorch": {"logs": section}}).logs == LogLinkSettings(
        kubernetes_enabled=True,
        templates=(LogTemplate(name="a", template_uris=("u",), show_while_pending=True),),
        dynamic_log_links={"vscode": LogTemplate(name="vscode", display_name="VS Code")},
    )


def by_cause(timeouts: dict[str, str]):
    return {"kfpytorch": {"timeouts": {"queue-timeout-by-cause": timeouts}}}


def test_variables_are_read_from_the_given_environment():
    section = {"default-env-vars": {"A": "a"}, "default-env-vars-from-env": {"B": "HOME", "C": "MISSING"}}
    assert settings.read(section, {"HOME": "/root"}).default_env_vars == {"A": "a", "B": "/root", "C": ""}


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        ({"default-cpu": 1}, "default-cpu", "1"),
        ({3: 1}, "3", "1"),
        ({"kfpytorch": 3}, "kfpytorch", "3"),
        ({"kfpytorch": {"task-resource": 1}}, "kfpytorch.task-resource", "1"),
        ({"default-memory": "1GB"}, "default-memory", "'1GB'"),
        ({"default-cpus": -1}, "default-cpus", "-1"),
        ({"scheduler-name": [1]}, "scheduler-name", "[1]"),
        ({"default-labels": "x"}, "default-labels", "'x'"),
        ({"default-pod-dns-config": "x"}, "default-pod-dns-config", "'x'"),
        ({"default-security-context": AS_ROOT}, "default-security-context", "{'runAsUser': 'root'}"),
        ({"image-pull-policy": "always"}, "image-pull-policy", "'always'"),
        ({"gpu-unpartitioned-toleration": {"kei": "a"}}, "gpu-unpartitioned-toleration", "{'kei': 'a'}"),
        ({"gpu-unpartitioned-toleration": TYPO}, "gpu-unpartitioned-toleration", "{'effect': 'NoSchedul'}"),
        ({NODES: {"key": "a"}}, NODES, "{'key': 'a'}"),
        ({NODES: {"operator": "Exists"}}, NODES, "{'operator': 'Exists'}"),
        ({NODES: {"key": "a", "operator": "in"}}, NODES, "{'key': 'a', 'operator': 'in'}"),
        ({"default-tolerations": [{"keyToBear": "a"}]}, "default-tolerations", "[{'keyToBear': 'a'}]"),
        ({"default-tolerations": {"key": "a"}}, "default-tolerations", "{'key': 'a'}"),
        ({"pod-pending-timeout": "3"}, "pod-pending-timeout", "'3'"),
        ({"pod-pending-timeout": "3 m"}, "pod-pending-timeout", "'3 m'"),
        ({"pod-pending-timeout": "-3m"}, "pod-pending-timeout", "'-3m'"),
        ({"pod-pending-timeout": "9" * 30 + "h"}, "pod-pending-timeout", repr("9" * 30 + "h")),
        ({"kfpytorch": {"exit-codes": {"x": "oom-gpu"}}}, "kfpytorch.exit-codes", "{'x': 'oom-gpu'}"),
        ({"kfpytorch": {"exit-codes": {256: "oom-gpu"}}}, "kfpytorch.exit-codes", "{256: 'oom-gpu'}"),
        ({"kfpytorch": {"exit-codes": {1: "oom"}}}, "kfpytorch.exit-codes", "{1: 'oom'}"),
        (by_cause({"image-pull": "1m"}), BY_CAUSE, "{'image-pull': '1m'}"),
        (by_cause({"quota-exceeded": "soon"}), BY_CAUSE, "{'quota-exceeded': 'soon'}"),
        ({"kfpytorch": {"logs": {"templates": [{"uri": "x"}]}}}, "kfpytorch.logs.templates", "[{'uri': 'x'}]"),
        ([], "", "[]"),
        ({"kfpytorch": {"dialect": "flux"}}, "kfpytorch.dialect", "'flux'"),
        ({"kfpytorch": {"dialect-by-domain": {"a": "both"}}}, "kfpytorch.dialect-by-domain", "{'a': 'both'}"),
        ({"kfpytorch": {"dialect-by-project": "trainjob"}}, "kfpytorch.dialect-by-project", "'trainjob'"),
        ({"kfpytorch": {"max-disruptions": -1}}, "kfpytorch.max-disruptions", "-1"),
        ({"kfpytorch": {"max-disruptions": True}}, "kfpytorch.max-disruptions", "True"),
        ({"kfpytorch": {"pod-security": {"mode": "baseline"}}}, "kfpytorch.pod-security.mode", "'baseline'"),
        ({"kfpytorch": {"pod-security": {"mode": True}}}, "kfpytorch.pod-security.mode", "True"),
        ({"kfpytorch": {"pod-security": {"by-namespace": 1}}}, "kfpytorch.pod-security.by-namespace", "1"),
    ],
)  # fmt: skip
def test_invalid_setting_is_a_problem(section, field, value):
    assert [(problem.field, problem.value) for problem in reject(section)] == [(field, value)]


def test_similar_setting_name_is_suggested():
    (of_flyte, ours) = reject({"default-cpu": 1, "kfpytorch": {"task-resource": 1}})
    assert of_flyte.remedy == "did you mean default-cpus?"
    assert ours.remedy == "did you mean task-resources?"


def test_each_key_has_a_field_and_each_field_a_key():
    assert {"default-cpus", "pod-pending-timeout", "kfpytorch.gang.queue"} < {*loader.list_keys()}
    assert not {"inject-finalizer"} & {*loader.list_keys()}
    sections = ("by-namespace", "by-project", "allowed-schedulers")
    assert loader.list_named_sections() == tuple(f"kfpytorch.gang.{each}" for each in sections)
    # The excluded key is part of `default-env-vars`.
    fields = {loader.get_field(key) for key in {*loader.list_keys()} - {"default-env-vars-from-env"}}
    for field in fields:
        attrgetter(field)(Settings())
    for part, kind in (("judging", JudgingSettings), ("logs", LogLinkSettings)):
        assert {f"{part}.{name}" for name in kind.__dataclass_fields__} <= fields


@pytest.mark.parametrize(
    ("parser", "value", "expected"),
    [
        (parsers.boolean, "False", False),
        (COUNT, "9", 9),
        (CHOICE, "B", "b"),
        (parsers.names, "a, b,", ("a", "b")),
        (parsers.names, ["a", 1], ("a", "1")),
        (parsers.text_map, "a=b,c=", {"a": "b", "c": ""}),
        (parsers.text_map, ["a=b"], {"a": "b"}),
        (parsers.text_map, [{"A": 1}, {"b": True}], {"A": "1", "b": "true"}),
        (parsers.message_size, "64Ki", 65_536),
    ],
)
def test_valid_value_is_parsed(parser, value, expected):
    assert parser(value) == expected


@pytest.mark.parametrize(
    ("parser", "value"),
    [
        (parsers.boolean, "yes"),
        (COUNT, 0),
        (COUNT, 10),
        (COUNT, "²"),
        (CHOICE, "c"),
        (parsers.names, 3),
        (parsers.text_map, "a"),
        (parsers.text_map, ["=b"]),
        (parsers.text_map, 3),
        (parsers.message_size, "63Ki"),
        (parsers.message_size, "2Gi"),
        # Python limits the number of digits that it converts.
        (parsers.duration, "1" * 20_000),
        (platform_parsers.causes_by_exit_code, {"9" * 5_000: "system-error"}),
    ],
)
def test_invalid_value_is_rejected(parser, value):
    with pytest.raises(InvalidSettingValue):
        parser(value)
