"""Tests of the allowlist of namespaces and output prefixes."""

from typing import Any

import pytest
from builders import a_run

from backend_plugin.core.errors import Problem
from backend_plugin.shell.allowlist import FLYTES, Allowlist
from backend_plugin.shell.output_prefixes import OutputPrefixes


def refused(allowed: dict[str, Any], **run: Any) -> list[Problem]:
    return [*Allowlist(prefixes=OutputPrefixes(["s3://bucket"]), **allowed).check_attempt(a_run(**run))]


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "kfpytorch"])
def test_system_and_release_namespaces_are_rejected_by_each_setting(namespace: str) -> None:
    given = {"namespaces": ("*", namespace), "template": "*", "refused": ("kfpytorch",)}
    (problem,) = refused(given, namespace=namespace)
    assert (problem.field, problem.value) == ("task_execution_metadata.namespace", namespace)
    assert not Allowlist(prefixes=OutputPrefixes(), **given).is_served(namespace)


@pytest.mark.parametrize(
    ("template", "namespace", "is_served"),
    [
        (FLYTES, "project-development", True),
        (FLYTES, "project-production", False),
        (FLYTES, "flyte", False),
        ("{{ domain }}", "development", True),
        ("{{domain}}", "development", True),
        ("{{ domain }}", "project-development", False),
        ("flyte-{{ project }}", "flyte-project", True),
        ("{{ org }}-{{ project }}-{{ domain }}", "acme-project-development", True),
        ("{{ org }}-{{ project }}-{{ domain }}", "acme-other-development", False),
        ("tasks", "tasks", True),
        ("team-*", "team-vision", True),
        ("*", "anything", True),
    ],
)
def test_namespace_must_match_project_and_domain(template: str, namespace: str, is_served: bool) -> None:
    assert (refused({"template": template}, namespace=namespace) == []) is is_served


@pytest.mark.parametrize("namespace", ["../../etc", "Upper", "", "a" * 64])
def test_invalid_namespace_is_rejected_with_any_allowlist(namespace: str) -> None:
    (problem,) = refused({"namespaces": ("*",), "template": "*"}, namespace=namespace)
    assert (problem.field, problem.value) == ("task_execution_metadata.namespace", namespace)


def test_remedy_for_a_prefix_that_no_setting_can_allow_names_no_setting() -> None:
    for prefix in ("http://host/f1", "s3://bucket/../f1"):
        (problem,) = refused({}, output_prefix=prefix)
        assert "output-prefixes" not in problem.remedy


def test_both_namespace_rules_apply_and_a_project_is_no_pattern() -> None:
    for project in ("*", "?roject", "[a-z]roject"):
        assert refused({"template": FLYTES}, project=project)
    given = {"template": FLYTES, "namespaces": ("team-*",)}
    assert refused(given)
    assert not refused(given, project="team-a", namespace="team-a-development")


def test_rejected_prefix_error_does_not_contain_platform_locations() -> None:
    (problem,) = refused({}, output_prefix="s3://elsewhere/f1")
    assert problem.field == "output_prefix"
    assert "bucket" not in str(problem)
