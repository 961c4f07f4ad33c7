"""Missing permissions of the doctor: one command creates the roles, and they remove the finding."""

import re
import shlex

import pytest
import yaml
from kube_world import collect_facts

from backend_plugin.doctor import run_checks
from backend_plugin.doctor.access_review import RULES
from backend_plugin.doctor.check import Severity
from backend_plugin.doctor.checks import connector
from backend_plugin.doctor.facts import Facts

FORBIDDEN = {"list nodes", "list deployments", "list resourcequotas", "list limitranges", "get namespaces"}


@pytest.fixture
def server(server):
    server.groups.setdefault("apps", {})["deployments"] = "v1"
    server.groups.setdefault("", {}).update(
        dict.fromkeys(("nodes", "namespaces", "resourcequotas", "limitranges"), "v1")
    )
    return server


def unseen(server, folder):
    facts = collect_facts(server, folder)
    return [each for each in run_checks.list_findings(facts) if each.id == run_checks.NOT_READABLE]


def read_manifests(remedy):
    """Return the manifests of a command as a shell passes them to kubectl."""
    words = shlex.split(remedy, comments=True)
    assert (words[0], words[2:]) == ("echo", ["|", "kubectl", "apply", "-f", "-"])
    assert not words[1].startswith("{"), "kubectl reads this as JSON"
    return yaml.safe_load(words[1])["items"]


def list_permitted(items):
    """Return what bound roles permit: verb and resource, by scope."""
    for role in items[::2]:
        where = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            for verb in rule["verbs"]:
                yield from ((where, f"{verb} {plural}") for plural in rule["resources"])


def test_remedy_command_grants_the_account_each_forbidden_request(server, tmp_path):
    server.forbidden |= FORBIDDEN
    (found,) = unseen(server, tmp_path)
    assert found.level is Severity.UNKNOWN
    items = read_manifests(found.remedy)
    assert [each["kind"] for each in items] == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    for role, binding in zip(items[::2], items[1::2], strict=True):
        assert binding["roleRef"]["kind"] == role["kind"]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["metadata"] == role["metadata"]
        assert [each["name"] for each in binding["subjects"]] == ["us"]
    permitted = set(list_permitted(items))
    assert {each for _, each in permitted} == FORBIDDEN
    assert ("ns", "list resourcequotas") in permitted
    assert ("", "list nodes") in permitted
    server.forbidden -= {each for _, each in permitted}
    assert unseen(server, tmp_path) == []


def test_remedy_command_contains_the_rules_of_all_kinds_and_namespaces_of_a_subject(server, tmp_path):
    server.groups.setdefault("trainer.kubeflow.org", {})["trainjobs"] = "v1alpha1"
    server.forbidden |= {"list pytorchjobs", "list trainjobs", "list podtemplates", "create pods"}
    (found,) = unseen(server, tmp_path)
    permitted = set(list_permitted(read_manifests(found.remedy)))
    assert permitted == {
        ("", "list pytorchjobs"),
        ("", "list trainjobs"),
        ("ns", "list podtemplates"),
        ("flyte", "list podtemplates"),
        ("ns", "create pods"),
    }
    assert f"(and {len(permitted)} more)" in found.sentence  # Two dry runs of pods are forbidden.


def test_missing_rules_of_a_connector_are_in_one_role():
    (check,) = (each for each in connector.CHECKS if each.id == "connector-rbac")
    (found,) = check.judge(Facts(namespace="ns", lacking={"flyte/kfpytorch": RULES}))
    role, binding = read_manifests(found.remedy)
    wanted = {f"{verb} {rule.resource}" for rule in RULES for verb in rule.verbs}
    assert {each for _, each in list_permitted([role, binding])} == wanted
    assert binding["subjects"][0]["name"] == "system:serviceaccount:flyte:kfpytorch"
    assert re.fullmatch(r"[a-z0-9-]+", role["metadata"]["name"])


def test_rejected_token_is_not_reported_as_an_unreachable_server(server, tmp_path):
    server.tokens = {"another"}
    (found,) = run_checks.list_findings(collect_facts(server, tmp_path))
    assert found.sentence.startswith("the API server answers 401 ")
