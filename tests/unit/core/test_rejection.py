"""Tests for the messages about rejected tasks, the limits on tasks, and the escapes of unsafe characters."""

import json

import pytest
from builders import a_run, a_template, reject
from hypothesis import given
from hypothesis import strategies as st

from backend_plugin.core import errors, names, printable, rejection, settings
from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.errors import CUSTOM_BYTES, MOST_PROBLEMS, InvalidTask, Problem
from backend_plugin.core.judging.verdict import Phase, Verdict
from backend_plugin.core.pipeline import plan


def problem(number):
    return Problem(field=f"f{number}", value="7", message="is odd", remedy="write 8")


def test_each_problem_has_a_line_and_the_rest_is_counted():
    assert rejection.format_problems([problem(1)]) == "the task cannot be run: f1=7: is odd; write 8"
    lines = rejection.format_problems([*map(problem, range(10))]).splitlines()
    assert lines[0] == "the task cannot be run as it is: f0=7: is odd; write 8"
    assert (len(lines), lines[-1]) == (9, "and 2 more problems")
    assert rejection.format_problems([problem(1)] * MOST_PROBLEMS).endswith("\nand 42 or more other problems")


def test_rejection_by_the_cluster_is_a_permanent_failure():
    message = rejection.format_cluster_rejection("Invalid", "spec: Required value")
    assert message == "the cluster refuses the job (Invalid): spec: Required value"
    assert rejection.format_cluster_rejection("", "denied") == "the cluster refuses the job: denied"
    verdict = rejection.build_verdict(message)
    assert (verdict.phase, verdict.message) == (Phase.FAILED, message)


def test_remedy_is_added_to_a_bare_kubernetes_message():
    terminated = "unable to create new content in namespace p-d because it is being terminated"
    assert rejection.add_remedy(terminated).startswith(f"{terminated}; run it in another")
    absent = 'namespaces "p-d" not found'
    assert rejection.add_remedy(absent).startswith(f"{absent}; create the namespace")
    assert rejection.add_remedy("spec: Required value") == "spec: Required value"


def test_quota_rejection_is_transient():
    expected = {
        (403, 'pytorchjobs "j" is forbidden: exceeded quota: jobs'): True,
        (403, 'admission webhook "v" denied the request: it would have exceeded quota'): False,
        (403, "j is forbidden: ValidatingAdmissionPolicy 'p' denied request: exceeded quota"): False,
        (422, "exceeded quota"): False,
    }
    assert {(code, message): rejection.is_transient(code, message) for code, message in expected} == expected


def test_attempt_fields_of_a_request_are_checked():
    assert not [*rejection.check_attempt_fields(a_run())]
    (long,) = rejection.check_attempt_fields(a_run(namespace="n" * 64))
    assert (long.field, long.value) == ("task_execution_metadata.namespace", "64 bytes")
    missing = [*rejection.check_attempt_fields(a_run(output_prefix="", namespace="", execution=""))]
    assert [each.field.rpartition(".")[2] for each in missing] == ["output_prefix", "namespace", "name"]


def marked(label, prefix):
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
    # A reference without an output prefix matches no job.
    assert not names.has_output_prefix(marked(names.compute_identity(""), ""), "")


def test_a_field_that_a_definition_lacks_may_need_a_newer_operator():
    message = 'strict decoding error: unknown field "spec.x"'
    found = rejection.add_upgrade(message, DIALECTS["TrainJob"])
    assert found.startswith(message)
    assert DIALECTS["TrainJob"].installation in found
    assert rejection.add_upgrade("denied", DIALECTS["TrainJob"]) == "denied"


def plan_task(template):
    return plan(template, a_run(), settings.read({}))


def test_problem_search_stops_at_the_limit():
    made = []

    def endless():
        while True:
            made.append(len(made))
            yield problem(made[-1])

    problems = errors.Problems([problem(-1)])
    with pytest.raises(InvalidTask) as caught:
        problems += endless()
    assert len(caught.value.problems) == MOST_PROBLEMS == len(made) + 1


def test_problems_of_several_stages_are_each_reported_once_and_in_order():
    def stages():
        with errors.collect_problems() as problems:
            problems.append(problem(2))
            raise InvalidTask(problem(1), problem(2), *map(problem, range(100, 100 + MOST_PROBLEMS)))

    fields = [each.field for each in reject(stages)]
    assert (fields[:3], len(fields)) == (["f2", "f1", "f100"], MOST_PROBLEMS)


def test_task_with_many_problems_is_rejected_with_some_of_them():
    tolerations = [{"key": 5}] * 1_000
    wide = {"workerReplicas": {"replicas": 1}, "kfpytorch": {"worker": {"tolerations": tolerations}}}
    assert len(reject(plan_task, a_template(wide))) == MOST_PROBLEMS


def test_custom_of_a_task_has_a_size_limit():
    (found,) = reject(plan_task, a_template({"workerReplicas": {"replicas": 1}, "x": "y" * CUSTOM_BYTES}))
    assert (found.field, found.message) == ("custom", "is larger than the limit of 262,144 bytes")
    assert int(found.value.removesuffix(" bytes").replace(",", "")) > CUSTOM_BYTES


def test_annotations_have_a_size_limit():
    def build_task(of_pod, of_task):
        spec = {"containers": [{"name": "main", "image": "i"}]}
        pod = {"podSpec": spec, "metadata": {"annotations": {"a": "x" * of_pod}}}
        template = a_template({"workerReplicas": {"replicas": 1}}, k8sPod=pod, container=None)
        template.metadata.metadata.annotations["b"] = "é" * (of_task // 2)
        return template

    assert plan_task(build_task(260_000, 0))
    (of_pod,) = reject(plan_task, build_task(262_144, 0))
    (of_task,) = reject(plan_task, build_task(0, 262_144))
    assert (of_pod.field, of_task.field) == ("metadata.annotations", "metadata.metadata.annotations")
    assert of_pod.remedy.startswith("leave some out")


def test_pod_has_a_limited_number_of_containers():
    pod = {"podSpec": {"containers": [{"name": f"c{number}", "image": "i"} for number in range(129)]}}
    wide = a_template({"workerReplicas": {"replicas": 1}}, container=None, k8sPod=pod)
    wide.config["primary_container_name"] = "c0"
    assert [each.field for each in reject(plan_task, wide)] == ["k8sPod.podSpec.containers"]


def test_terminal_control_characters_are_escaped():
    expected = {
        "\x1b[2Jgone": r"\x1b[2Jgone",
        "a\x00b\x07c\x08d\x7fe": r"a\x00b\x07c\x08d\x7fe",
        "\x9b31m \x85": r"\x9b31m \x85",
        "admin\u202etxt.exe\u202c": r"admin\u202etxt.exe\u202c",
        "\u2066a\u2069 \u200e\u200f\u061c": r"\u2066a\u2069 \u200e\u200f\u061c",
        "one\u2028two\u2029three": r"one\u2028two\u2029three",
        "\ud800": r"\ud800",
        "\ufeffx": r"\ufeffx",
        "10%\r100%": r"10%\r100%",
        "one\r\ntwo\x1b": "one\ntwo\\x1b",
        "tab\tand\nnewline": "tab\tand\nnewline",
        "Grüße, 世界, שלום, 👩‍👧": "Grüße, 世界, שלום, 👩‍👧",
        "": "",
    }
    assert {text: printable.escape(text) for text in expected} == expected


@given(st.text())
def test_escaped_text_is_encodable_and_stable(text):
    escaped = printable.escape(text)
    escaped.encode()
    assert printable.escape(escaped) == escaped


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_json_has_the_same_value(text):
    document = printable.escape_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(document) == {"a": text}
    assert printable.escape(document) == document


def test_verdict_contains_no_unsafe_characters():
    phase = Verdict(phase=Phase.FAILED, reason="a\x9b", message="\x1b]0;title\x07 \u202e")
    assert (phase.reason, phase.message) == (r"a\x9b", r"\x1b]0;title\x07 \u202e")
