from datetime import timedelta
from operator import attrgetter

import pytest

from backend_plugin.core import settings
from backend_plugin.core.errors import InvalidSettings, Problem
from backend_plugin.core.settings import PluginSettings, Settings, TaskResources, loader
from backend_plugin.core.settings import value_parsers as parsers
from backend_plugin.core.settings.engine import InvalidSettingValue
from backend_plugin.core.settings.judging import JudgingSettings
from backend_plugin.core.settings.logs import LogLinkSettings, LogTemplate
from kfpytorch_common.causes import Cause
from kfpytorch_common.quantity import parse

TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}
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
    "interruptible-tolerations": ([TOLERATION], [TOLERATION]),
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
    "default-pod-security-context": (
        {"runAsUser": 0.0, "supplementalGroups": [], "fsGroup": None},
        {"runAsUser": 0},
    ),
    "default-security-context": ({"privileged": False}, {"privileged": False}),
    "enable-host-networking-pod": (False, False),
    "default-pod-dns-config": ({"options": [{"name": "x"}]}, {"options": [{"name": "x"}]}),
    "default-pod-template-name": ("gang", "gang"),
    "add-tolerations-for-extended-resources": (["a/b"], ("a/b",)),
}
AS_ROOT = {"runAsUser": "root"}
TYPO = {"effect": "NoSchedul"}
LOGS = {"templates": [{"uri": "x"}]}


def test_empty_settings_are_flyte_defaults():
    assert settings.read({}) == Settings()
    assert settings.read(dict.fromkeys(SAID)) == Settings()
    assert settings.read({"default-annotations": {}, "default-tolerations": []}) == Settings()


@pytest.mark.parametrize("key", SAID)
def test_each_setting_is_read_under_its_flyte_name(key):
    value, meant = SAID[key]
    assert settings.read({key: value}) == Settings(**{key.replace("-", "_"): meant})


def test_each_setting_has_a_test_row():
    assert {key.replace("-", "_") for key in SAID} | {"kfpytorch", "judging", "logs"} == set(
        Settings.__dataclass_fields__
    )


def reject(section) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSettings) as refusal:
        settings.read(section)
    return refusal.value.problems


def test_unknown_pod_field_in_a_setting_is_rejected_with_its_path():
    terms = "requiredDuringSchedulingIgnoredDuringExecution"
    (found,) = reject({"default-affinity": {"podAffinity": {terms: [{}, {"topology": "x"}]}}})
    path = f"podAffinity.{terms}[1].topology"
    assert (found.field, found.message) == ("default-affinity", f"has the unknown field {path}")


def test_problems_of_a_gang_are_reported_with_those_of_other_settings():
    found = reject({"kfpytorch": {"gang": {"scheduler": "slurm", "foo": 1}, "max-disruptions": -1}})
    names = ("gang.foo", "gang.scheduler", "max-disruptions")
    assert sorted(each.field for each in found) == [f"kfpytorch.{name}" for name in names]


def test_long_value_is_truncated_in_the_problem():
    (problem,) = reject({"default-tolerations": [{"key": "a", "operator": "x" * 5000}]})
    assert len(str(problem)) < 400


def test_settings_of_other_flyte_plugins_are_ignored():
    assert settings.read({"co-pilot": {"image": "x"}, "inject-finalizer": True}) == Settings()


def test_task_resources_of_the_platform_are_read():
    resources = {"defaults": {"cpu": 2}, "limits": [{"gpu": "8"}, {"memory": "1Ti"}]}
    read = settings.read({"gpu-resource-name": "amd.com/gpu", "kfpytorch": {"task-resources": resources}})
    assert read.kfpytorch == PluginSettings(
        task_resources=TaskResources(
            defaults={"cpu": parse("2")}, limits={"amd.com/gpu": parse("8"), "memory": parse("1Ti")}
        )
    )


def test_timeouts_are_read_from_flyte_settings_and_ours():
    section = {
        "pod-pending-timeout": "1h30m",
        "image-pull-backoff-grace-period": "0",
        "create-container-error-grace-period": "0s",
        "create-container-config-error-grace-period": "1.5ms",
        "kfpytorch": {
            "timeouts": {"queue-timeout": "90s"},
            "exit-codes": {3: "invalid-config", "4": "system-error"},
        },
    }
    assert settings.read(section).judging == JudgingSettings(
        pending_timeout=timedelta(minutes=90),
        image_pull_backoff_grace_period=timedelta(0),
        create_container_error_grace_period=timedelta(0),
        create_container_config_error_grace_period=timedelta(microseconds=1500),
        queue_timeout=timedelta(seconds=90),
        exit_codes={3: Cause.INVALID_CONFIG, 4: Cause.SYSTEM_ERROR},
    )


def test_each_field_of_timeouts_and_logs_can_be_set():
    everything = {
        "kubernetes-enabled": True,
        # Flyte ignores `scheme` now, but existing files may contain it.
        "templates": [{"name": "a", "templateUris": ["u"], "showWhilePending": True, "scheme": "Pod"}],
        "dynamic-log-links": [{"vscode": {"displayName": "VS Code"}}],
    }
    assert settings.read({"kfpytorch": {"logs": everything}}).logs == LogLinkSettings(
        kubernetes_enabled=True,
        templates=(LogTemplate(name="a", template_uris=("u",), show_while_pending=True),),
        dynamic_log_links={"vscode": LogTemplate(name="vscode", display_name="VS Code")},
    )
    names = {
        name.replace("_", "-")
        for name in (*JudgingSettings.__dataclass_fields__, *LogLinkSettings.__dataclass_fields__)
    }
    problems = reject({"kfpytorch": {"logs": dict.fromkeys(names, ()), "timeouts": dict.fromkeys(names, ())}})
    unknown = [each.field for each in problems if each.message == "is not a setting"]
    assert {name for name in names if sum(field.endswith(f".{name}") for field in unknown) == 2} == {
        "pending-timeout",
        "image-pull-backoff-grace-period",
        "create-container-error-grace-period",
        "create-container-config-error-grace-period",
        "exit-codes",
    }


def by_cause(timeouts: dict[str, str]):
    return {"kfpytorch": {"timeouts": {"queue-timeout-by-cause": timeouts}}}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"pod-pending-timeout": "3"}, "is not a duration"),
        ({"pod-pending-timeout": "3 m"}, "is not a duration"),
        ({"pod-pending-timeout": "-3m"}, "is not a duration"),
        ({"pod-pending-timeout": "9" * 30 + "h"}, "is too long"),
        ({"kfpytorch": {"exit-codes": {"x": "invalid-config"}}}, "has 'x' as an exit code"),
        ({"kfpytorch": {"exit-codes": {256: "invalid-config"}}}, "has '256' as an exit code"),
        ({"kfpytorch": {"exit-codes": {1: "oom"}}}, "has 'oom' as a cause"),
        (by_cause({"image-pull": "1m"}), "has 'image-pull' as the reason of a wait"),
        (by_cause({"quota-exceeded": "soon"}), "is not a duration"),
        ({"kfpytorch": {"logs": LOGS}}, "Object contains unknown field `uri` - at `$[0]`"),
    ],
)
def test_invalid_timeouts_and_logs_are_problems(section, message):
    assert [problem.message for problem in reject(section)] == [message]


def test_variables_are_read_from_the_given_environment():
    section = {"default-env-vars": {"A": "a"}, "default-env-vars-from-env": {"B": "HOME", "C": "MISSING"}}
    assert settings.read(section, {"HOME": "/root"}).default_env_vars == {"A": "a", "B": "/root", "C": ""}


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        ({"default-cpu": 1}, "default-cpu", "1"),
        ({"zzz": 1}, "zzz", "1"),
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
        ({"default-tolerations": [{"keyToBear": "a"}]}, "default-tolerations", "[{'keyToBear': 'a'}]"),
    ],
)
def test_invalid_setting_is_a_problem(section, field, value):
    assert [(problem.field, problem.value) for problem in reject(section)] == [(field, value)]


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ({"default-cpu": 1}, "default-cpus"),
        ({"kfpytorch": {"task-resource": 1}}, "task-resources"),
        ({"gpu-unpartitioned-toleration": {"kei": "a"}}, "key"),
        ([], None),
    ],
)
def test_similar_setting_name_is_suggested(section, name):
    (problem,) = reject(section)
    assert name is None or problem.remedy == f"did you mean {name}?"


def test_each_key_has_a_field_or_is_part_of_one():
    assert {"default-cpus", "pod-pending-timeout", "kfpytorch.gang.queue"} < {*loader.list_keys()}
    assert not {"inject-finalizer"} & {*loader.list_keys()}
    assert loader.list_named_sections() == (
        "kfpytorch.gang.by-namespace",
        "kfpytorch.gang.by-project",
        "kfpytorch.gang.allowed-schedulers",
    )
    # The excluded key is part of `default-env-vars`.
    for key in {*loader.list_keys()} - {"default-env-vars-from-env"}:
        attrgetter(loader.get_field(key))(Settings())


COUNT = parsers.build_count_parser(1, 9)
CHOICE = parsers.build_choice_parser("a", "b")


@pytest.mark.parametrize(
    ("parser", "value", "expected"),
    [
        (parsers.boolean, True, True),
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
    ],
)
def test_invalid_value_is_rejected(parser, value):
    with pytest.raises(InvalidSettingValue):
        parser(value)
