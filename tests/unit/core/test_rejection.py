"""Tests for the messages about rejected tasks."""

import pytest
from builders import a_run

from backend_plugin.core import names, rejection
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.errors import MOST_PROBLEMS, InvalidTask, Problem
from backend_plugin.core.judging.verdict import Phase


def problem(field: str) -> Problem:
    return Problem(field=field, value="7", message="is odd", remedy="write 8")


def test_each_problem_has_a_line_and_the_rest_is_counted():
    assert rejection.format_problems([problem("a")]) == "the task cannot be run: a=7: is odd; write 8"
    lines = rejection.format_problems([problem(f"f{number}") for number in range(10)]).splitlines()
    assert lines[0] == "the task cannot be run as it is: f0=7: is odd; write 8"
    assert (len(lines), lines[-1]) == (9, "and 2 more problems")
    at_limit = rejection.format_problems([problem("a")] * MOST_PROBLEMS)
    assert at_limit.endswith("\nand 42 or more other problems")


def test_rejection_by_the_cluster_is_a_permanent_failure():
    message = rejection.format_cluster_rejection("Invalid", "spec: Required value")
    assert message == "the cluster refuses the job (Invalid): spec: Required value"
    assert rejection.format_cluster_rejection("", "denied") == "the cluster refuses the job: denied"
    verdict = rejection.build_verdict(message)
    assert (verdict.phase, verdict.message) == (Phase.FAILED, message)


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ('namespaces "p-d" not found', "create the namespace, as Flyte does for each project and domain"),
        (
            "unable to create new content in namespace p-d because it is being terminated",
            "run it in another project or domain, or after the namespace exists again",
        ),
    ],
)
def test_remedy_is_added_to_a_bare_kubernetes_message(message, remedy):
    assert rejection.add_remedy(message) == f"{message}; {remedy}"
    assert rejection.add_remedy("spec: Required value") == "spec: Required value"


@pytest.mark.parametrize(
    ("code", "message", "passes"),
    [
        (403, 'pytorchjobs "j" is forbidden: exceeded quota: jobs', True),
        (403, 'admission webhook "v" denied the request: it would have exceeded quota', False),
        (403, "j is forbidden: ValidatingAdmissionPolicy 'p' denied request: exceeded quota", False),
        (422, "exceeded quota", False),
    ],
)
def test_quota_rejection_is_transient(code, message, passes):
    assert rejection.is_transient(code, message) is passes


def test_attempt_fields_of_a_request_are_checked():
    assert not [*rejection.check_attempt_fields(a_run())]
    (long,) = rejection.check_attempt_fields(a_run(namespace="n" * 64))
    assert (long.field, long.value) == ("task_execution_metadata.namespace", "64 characters")
    missing = [*rejection.check_attempt_fields(a_run(output_prefix="", namespace="", execution=""))]
    assert [each.field.rpartition(".")[2] for each in missing] == ["output_prefix", "namespace", "name"]


def marked(label: str, prefix: str):
    metadata = {"name": "j", "labels": {names.IDENTITY: label}, "annotations": {names.OUTPUT_PREFIX: prefix}}
    return {"metadata": metadata}


def test_only_a_job_of_the_same_attempt_is_adopted():
    run = a_run(output_prefix="s3://b/0")
    mine, others = names.compute_identity("s3://b/0"), names.compute_identity("s3://b/1")
    rejection.require_own_job(run, marked(mine, "s3://b/0"))
    rejection.require_own_job(run, {"metadata": {"labels": {names.IDENTITY: mine}}})
    for other in (marked(others, "s3://b/0"), marked(mine, "s3://b/1"), {"metadata": {"name": "j"}}):
        with pytest.raises(InvalidTask, match="has not created for this attempt"):
            rejection.require_own_job(run, other)


def test_reference_without_an_output_prefix_matches_no_job():
    assert not names.has_output_prefix(marked(names.compute_identity(""), ""), "")


def test_a_field_that_a_definition_lacks_may_need_a_newer_operator():
    message = 'strict decoding error: unknown field "spec.x"'
    found = rejection.add_upgrade(message, DIALECTS["TrainJob"])
    assert found.startswith(message)
    assert DIALECTS["TrainJob"].installation in found
    assert rejection.add_upgrade("denied", DIALECTS["TrainJob"]) == "denied"
