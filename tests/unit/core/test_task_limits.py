"""Tests for the limits on the problems, bytes and containers of a task."""

from collections.abc import Iterator

import pytest
from builders import a_run, a_template, reject

from backend_plugin.core import settings
from backend_plugin.core.errors import (
    CUSTOM_BYTES,
    MOST_PROBLEMS,
    InvalidTask,
    Problem,
    Problems,
    collect_problems,
)
from backend_plugin.core.pipeline import plan


def problem(number: int) -> Problem:
    return Problem(field=f"f{number}", value="7", message="is odd", remedy="write 8")


def refused(template) -> list[str]:
    return [each.field for each in reject(plan, template, a_run(), settings.read({}))]


def test_problem_search_stops_at_the_limit():
    made: list[int] = []

    def endless() -> Iterator[Problem]:
        while True:
            made.append(len(made))
            yield problem(made[-1])

    problems = Problems([problem(-1)])
    with pytest.raises(InvalidTask) as caught:
        problems += endless()
    assert len(caught.value.problems) == MOST_PROBLEMS == len(made) + 1


def test_problems_of_several_stages_are_each_reported_once_and_in_order():
    def stages() -> None:
        with collect_problems() as problems:
            problems.append(problem(2))
            raise InvalidTask(problem(1), problem(2), *map(problem, range(100, 100 + MOST_PROBLEMS)))

    fields = [each.field for each in reject(stages)]
    assert (fields[:3], len(fields)) == (["f2", "f1", "f100"], MOST_PROBLEMS)


def test_task_with_many_problems_is_rejected_with_some_of_them():
    tolerations = [{"key": 5}] * 1_000
    wide = {"workerReplicas": {"replicas": 1}, "kfpytorch": {"worker": {"tolerations": tolerations}}}
    assert len(refused(a_template(wide))) == MOST_PROBLEMS


def test_custom_of_a_task_has_a_size_limit():
    wide = {"workerReplicas": {"replicas": 1}, "x": "y" * CUSTOM_BYTES}
    (found,) = reject(plan, a_template(wide), a_run(), settings.read({}))
    assert (found.field, found.message) == ("custom", "is larger than the limit of 262,144 bytes")
    assert int(found.value.removesuffix(" bytes").replace(",", "")) > CUSTOM_BYTES


@pytest.mark.parametrize(
    ("of_pod", "of_task", "fields"),
    [
        (260_000, 0, []),
        (262_144, 0, ["metadata.annotations"]),
        (0, 262_144, ["metadata.metadata.annotations"]),
    ],
)
def test_annotations_have_a_size_limit(of_pod, of_task, fields):
    pod = {
        "podSpec": {"containers": [{"name": "main", "image": "i"}]},
        "metadata": {"annotations": {"a": "x" * of_pod}},
    }
    template = a_template({"workerReplicas": {"replicas": 1}}, k8sPod=pod, container=None)
    template.metadata.metadata.annotations["b"] = "é" * (of_task // 2)
    try:
        plan(template, a_run(), settings.read({}))
        found = []
    except InvalidTask as refusal:
        found = [each.field for each in refusal.problems]
    assert found == fields


def test_pod_has_a_limited_number_of_containers():
    containers = [{"name": f"c{number}", "image": "i"} for number in range(129)]
    pod = {"podSpec": {"containers": containers}}
    wide = a_template({"workerReplicas": {"replicas": 1}}, container=None, k8sPod=pod)
    wide.config["primary_container_name"] = "c0"
    assert refused(wide) == ["k8sPod.podSpec.containers"]
