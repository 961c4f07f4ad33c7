# ruff: noqa: E501 - a row a case
"""Tests of the files that a command reads besides its task: settings and PodTemplates."""

from pathlib import Path

import pytest
import yaml

from backend_plugin.cli import input_files, serve_settings
from backend_plugin.cli.command_errors import UnusableInput
from backend_plugin.core.errors import InvalidSettings, Problem

SECTION = {"default-labels": {"team": "a"}}
ADMINS = {"defaults": {"cpu": "2"}, "limits": {"memory": "8Gi", "ephemeralStorage": "20Gi"}}
RESOURCES = {"task_resources": ADMINS}
TEMPLATE = {"kind": "PodTemplate", "metadata": {"name": "t"}, "template": {}}


def read(directory, text):
    """Return the settings that a command reads from a file with this text."""
    (directory / "s.yaml").write_text(text)
    return input_files.read_settings(str(directory / "s.yaml"))


@pytest.mark.parametrize(
    "content",
    [
        {**RESOURCES, "k8s": SECTION},
        {**RESOURCES, "plugins": {"k8s": SECTION, "logs": {"kubernetes-enabled": True}}, "propeller": {}},
        {"configuration": {"inline": {**RESOURCES, "plugins": {"k8s": SECTION}}}},
        {"configmap": {"task_resource_defaults": RESOURCES, "k8s": {"plugins": {"k8s": SECTION}}, "core": {}}},
    ],
    ids=["k8s", "configuration", "flyte-binary", "flyte-core"],
)  # fmt: skip
def test_section_and_task_resources_are_found_in_each_layout_of_flyte_config(tmp_path, content):
    settings = read(tmp_path, yaml.safe_dump(content))
    for each in (settings, serve_settings.read_configuration(str(tmp_path / "s.yaml"), {}).platform):
        assert each.default_labels == {"team": "a"}
        resources = each.kfpytorch.task_resources
        assert {name: amount.text for name, amount in resources.defaults.items()} == {"cpu": "2"}
        limits = {name: amount.text for name, amount in resources.limits.items()}
        assert limits == {"memory": "8Gi", "ephemeral-storage": "20Gi"}


def test_file_may_contain_only_the_section_or_only_task_resources(tmp_path):
    assert read(tmp_path, yaml.safe_dump(SECTION)).default_labels == {"team": "a"}
    assert [*read(tmp_path, yaml.safe_dump(RESOURCES)).kfpytorch.task_resources.defaults] == ["cpu"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "# nothing", "plugins: {}", "plugins: {logs: {}}", "k8s:"),
        # Values of the charts of Flyte without the section.
        "configuration: {inline: {tasks: {task-plugins: {enabled-plugins: [pytorch]}}}}",
        "{configuration: {inline: null, database: {}}, serviceAccount: {}}",
        "configmap: {core: {propeller: {}}}",
    ],
)
def test_file_without_the_section_means_flyte_defaults(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == input_files.read_settings(None)


def test_flyte_log_settings_are_read_beside_the_section(tmp_path):
    logs = {"kubernetes-enabled": True}
    for section, url in (
        (None, ""),
        ({}, ""),
        ({"kfpytorch": {}}, ""),
        ({"kfpytorch": {"logs": {"kubernetes-enabled": True, "kubernetes-url": "u"}}}, "u"),
    ):
        found = read(tmp_path, yaml.safe_dump({"plugins": {"k8s": section, "logs": logs}})).logs
        assert (found.kubernetes_enabled, found.kubernetes_url) == (True, url)


def test_our_task_resources_replace_those_of_flyte(tmp_path):
    ours = {"kfpytorch": {"task-resources": {"limits": {"cpu": "4"}}}}
    text = yaml.safe_dump({**RESOURCES, "plugins": {"k8s": ours}})
    resources = read(tmp_path, text).kfpytorch.task_resources
    assert (dict(resources.defaults), [*resources.limits]) == ({}, ["cpu"])


@pytest.mark.parametrize(
    ("text", "field", "place"),
    [
        ("{plugins: {k8s: %s}, kfpytorch: {dialect: x}}", "kfpytorch", "plugins.k8s"),
        ("plugins: {k8s: %s, kfpytorch: {dialect: x}}", "plugins.kfpytorch", "plugins.k8s"),
        ("{configuration: {inline: {plugins: {k8s: %s}, kfpytorch: {dialect: x}}}}", "configuration.inline.kfpytorch", "configuration.inline.plugins.k8s"),
        ("{configmap: {k8s: {plugins: {k8s: %s}}}, kfpytorch: {dialect: x}}", "kfpytorch", "configmap.k8s.plugins.k8s"),
    ],
)  # fmt: skip
def test_our_section_outside_of_flytes_section_is_a_problem(tmp_path, text, field, place):
    misplaced = Problem(
        field=field,
        value="{'dialect': 'x'}",
        message="has no effect outside of plugins.k8s",
        remedy=f"move it to {place}.kfpytorch",
    )
    for section, others in (("{}", []), ("{default-cpu: 1}", ["default-cpu"])):
        with pytest.raises(InvalidSettings) as refusal:
            read(tmp_path, text % section)
        assert refusal.value.problems[0] == misplaced
        assert [each.field for each in refusal.value.problems[1:]] == others
        with pytest.raises(InvalidSettings) as same:
            serve_settings.read_configuration(str(tmp_path / "s.yaml"), {})
        assert same.value.problems == refusal.value.problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "is not a mapping"),
        ("plugins: {k8s: x}", "is not a mapping"),
        ("{", r"is not YAML: while parsing[^<]*at line 2, column 1"),
        ("- " * 100_000, "is not YAML: nests more than 500 levels deep"),
        ("a: 1\n---\nb: 2", "has more than one document"),
    ],
)
def test_invalid_settings_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UnusableInput, match=message):
        read(tmp_path, text)


def test_pod_templates_are_read_as_kubectl_prints_them(tmp_path):
    both = [TEMPLATE, TEMPLATE]
    for text in (yaml.safe_dump_all(both), yaml.safe_dump({"kind": "List", "items": both})):
        (tmp_path / "p.yaml").write_text(text)
        assert input_files.read_pod_templates([str(tmp_path / "p.yaml")]) == both


@pytest.mark.parametrize(
    ("text", "message"),
    [("kind: Pod", "contains a Pod"), ("7", "contains a value that is not an object"), ("{", "is not YAML")],
)
def test_invalid_pod_template_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(UnusableInput, match=message):
        input_files.read_pod_templates([str(tmp_path / "p.yaml")])
