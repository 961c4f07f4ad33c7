"""Tests of the findings from facts, of the pages that list them, and of the store checks."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from click.testing import CliRunner
from remedy_cases import CASES, role

from backend_plugin.cli.commands import kfpytorch
from backend_plugin.doctor import external_probes, run_checks
from backend_plugin.doctor.check import Check, Severity, Violation
from backend_plugin.doctor.facts import DryRunReply, Facts, NotReadable, ProbeResult, Subject
from backend_plugin.doctor.run_checks import CHECKS, EXIT_CODES

NODES = NotReadable("the API server answers 500", "kubectl get nodes")
DOCS = Path(__file__).parents[3] / "docs"


def test_worst_finding_comes_first_and_determines_the_exit_code():
    wrong = Violation(sentence="is wrong", remedy="put it right")
    checks = [
        Check(id="a-check", level=level, condition="it is right", judge=lambda _: [wrong])
        for level in (Severity.NOTE, Severity.WARNING, Severity.ERROR)
    ]
    found = run_checks.list_findings(Facts(namespace="n"), checks)
    assert [each.level for each in found] == [Severity.ERROR, Severity.WARNING, Severity.NOTE]
    assert [run_checks.get_exit_code(found[at:]) for at in range(4)] == [1, 3, 0, 0]


def test_unreachable_api_server_is_the_only_finding():
    message = "the API server answers 503 ServiceUnavailable: the apiserver is down; see its log"
    (found,) = run_checks.list_findings(Facts(namespace="n", unreachable=message))
    assert (found.id, found.sentence) == ("api-unreachable", message)
    assert found.remedy.startswith("kubectl version  # ")


def test_unusable_kubeconfig_is_reported_with_our_last_clause_as_the_remedy(tmp_path):
    file = tmp_path / "mine; and not yours"
    arguments = ["doctor", "--kubeconfig", str(file)]
    done = CliRunner().invoke(kfpytorch, arguments)
    last = f"1 of {len(CHECKS)} checks made: 1 error"
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, last)
    report = json.loads(CliRunner().invoke(kfpytorch, [*arguments, "-o", "json"]).stdout)
    assert report["not_checked"] == [check.id for check in CHECKS if check.id != "api-unreachable"]
    (found,) = report["findings"]
    assert found["sentence"] == f"the API server cannot be reached: kubeconfig {file}: there is no such file"
    assert found["remedy"] == "name a kubeconfig that kubectl can use"


def test_check_ids_are_unique_and_plain():
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids)
    assert all(each.replace("-", "").isalpha() and each.islower() for each in ids)
    assert run_checks.NOT_READABLE not in ids
    # A check with an unknown subject would always run and could never be left out.
    assert {subject for check in CHECKS for subject in check.needs} <= {*Subject}


UNTRIED = ProbeResult(what="gs://b/", problem="cannot be tried", remedy="pip install gcsfs", is_tried=False)
OURS = {"metadata": {"labels": {"app.kubernetes.io/name": "kfpytorch-backend"}}}
WITH_SOMETHING: dict[str, dict[str, Any]] = {
    "output-store": {"stores": [ProbeResult(what="s3://a/")]},
    "connector-unreachable": {"connector": ProbeResult(what="h:1")},
    "flyte-route": {"objects": {Subject.FLYTE_CONFIG: [{"tasks": {}}]}},
    "node-taints": {"task": role()},
    "job-rejected": {"job_reply": DryRunReply(stored={})},
    "webhook-missing": {"invalid_reply": DryRunReply(reason="Invalid", message="two masters")},
    "pod-rejected": {"pod_replies": {"worker": DryRunReply(stored={})}},
    "connector-rbac": {"objects": {Subject.DEPLOYMENTS: [OURS]}},
}


@pytest.mark.parametrize("check", WITH_SOMETHING)
def test_check_without_relevant_facts_is_skipped(check: str) -> None:
    assert check in run_checks.list_skipped_checks(Facts(namespace="n"))
    assert check not in run_checks.list_skipped_checks(Facts(namespace="n", **WITH_SOMETHING[check]))


def test_store_that_could_not_be_probed_is_unknown():
    facts = Facts(namespace="n", stores=[ProbeResult(what="s3://a/"), UNTRIED])
    (found,) = (each for each in run_checks.list_findings(facts) if each.id == "output-store")
    assert found.level is Severity.UNKNOWN
    assert "output-store" in run_checks.list_skipped_checks(facts)


def test_connector_without_an_endpoint_is_no_connector_of_flyte():
    (config,) = CASES["flyte-connector"].get_objects(Subject.FLYTE_CONFIG)
    for section in ({}, {"defaultConnector": {}}, {"defaultConnector": None, "connectors": {"a": {}}}):
        document = {**config, "plugins": {"connector-service": section}}
        facts = Facts(namespace="n", objects={Subject.FLYTE_CONFIG: [document]})
        assert "flyte-connector" in {each.id for each in run_checks.list_findings(facts)}


@pytest.mark.parametrize(("check", "need"), [(check.id, need) for check in CHECKS for need in check.needs])
def test_check_with_an_unreadable_subject_is_unknown_and_not_counted(check: str, need: Subject) -> None:
    facts = replace(CASES[check], unseen={need: NODES})
    found = {each.id: each for each in run_checks.list_findings(facts)}
    assert check not in found
    unreadable = found[run_checks.NOT_READABLE]
    assert (unreadable.level, unreadable.remedy) == (Severity.UNKNOWN, NODES.remedy)
    reason, _, skipped = unreadable.sentence.partition("; not checked: ")
    assert (reason, check in skipped.split(", ")) == (f"could not read {need.value}: {NODES.reason}", True)
    assert check in run_checks.list_skipped_checks(facts)


def test_error_of_a_request_marks_a_command_in_its_remedy():
    remedies = ("", "name a kubeconfig", "kubectl version")
    found = [str(NotReadable("no answer", remedy)) for remedy in remedies]
    assert found == ["no answer", "no answer; name a kubeconfig", "no answer; run: kubectl version"]


def test_page_contains_each_exit_code():
    text = (DOCS / "reference" / "doctor.md").read_text()
    codes = {int(found) for found in re.findall(r"^\| (\d) \|", text, re.MULTILINE)}
    assert codes == {*EXIT_CODES.values(), 2}


def test_how_to_guide_names_only_existing_checks():
    page = (DOCS / "how-to" / "verify-and-troubleshoot.md").read_text()
    section = page.partition("## Replace manual checks")[2]
    named = set(re.findall(r"^\| .*\| `([a-z-]+)`", section, re.MULTILINE))
    assert named
    assert named <= {check.id for check in CHECKS}


def probe(*prefixes, read_only):
    facts = Facts(namespace="any")
    return asyncio.run(external_probes.probe_external(facts, prefixes, None, read_only=read_only)).stores


def test_store_is_unchanged_by_the_probe_and_a_read_only_probe_writes_nothing(tmp_path):
    before = tmp_path.stat().st_mtime_ns
    for read_only in (True, False):
        (store,) = probe(f"file://{tmp_path}", read_only=read_only)
        assert (store.problem, [*tmp_path.iterdir()]) == ("", [])
        assert (tmp_path.stat().st_mtime_ns == before) is read_only


def test_missing_store_is_reported_with_the_required_permissions(tmp_path):
    rows = ((True, "read", " get and list "), (False, "written", " get, put, list and delete "))
    for read_only, done, rights in rows:
        (store,) = probe(f"file://{tmp_path}/none", read_only=read_only)
        assert store.problem.startswith(f"cannot be {done}: ")
        assert rights in store.remedy


def test_read_only_probe_detects_a_missing_permission_to_read(monkeypatch):
    store = fsspec.filesystem("memory")
    store.pipe_file("/private/there/data", b"a")

    def refuse(*_, **__):
        raise PermissionError("403: GetObject is denied")

    monkeypatch.setattr(type(store), "cat_file", refuse)
    (found,) = probe("memory://private/there", read_only=True)
    assert found.problem == "cannot be read: PermissionError: 403: GetObject is denied"
    assert " get and list " in found.remedy


def test_empty_prefix_in_a_closed_bucket_is_accepted(monkeypatch):
    def list_objects(_, path, **__):
        raise FileNotFoundError(path) if path == "/closed/below" else OSError("Forbidden: closed")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "ls", list_objects)
    (found,) = probe("memory://closed/below", read_only=True)
    assert found.problem == ""


def test_empty_prefix_in_an_existing_bucket_is_accepted():
    fsspec.filesystem("memory").pipe_file("/bucket/there", b"")
    well, other = probe("memory://bucket/none/yet", "memory://other/none", read_only=True)
    assert well.problem == ""
    assert other.problem.startswith("cannot be read: FileNotFoundError")
