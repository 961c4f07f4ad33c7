"""Jobs that want the same GPUs: one by one they block each other, as gangs of co-scheduling they take turns.

Five replicas with two GPUs each; the nodes that are played have sixteen. Pods come to the scheduler in turns,
one of each job, as from an operator that has much to do: a gate on each of them sees to it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rig import backend
from rig.api import pods
from rig.backend import Backend
from rig.caller import Attempt, Caller, Said, Shape
from rig.control_plane import ControlPlane
from rig.fake_nodes import RUN
from rig.process import Process, until
from rig.scheduling import COSCHEDULING

NAMESPACE = "gangs"
GROUPS = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
MEMBERS = 5
GATE = {"podTemplate": {"spec": {"schedulingGates": [{"name": "kfpytorch.test/turn"}], "containers": []}}}
SHAPE = Shape(workers=MEMBERS - 1, gpus=2, custom={"kfpytorch": {"master": GATE, "worker": GATE}})
ELASTIC = Shape(
    gpus=2,
    custom={
        "workerReplicas": {"replicas": MEMBERS},
        "elasticConfig": {"minReplicas": 2, "maxReplicas": MEMBERS, "nprocPerNode": 1},
    },
)
SETTINGS = "plugins: {{k8s: {{kfpytorch: {{gang: {{scheduler: {scheduler}{style}}}}}}}}}"


@dataclass(kw_only=True)
class Scene:
    """A cluster, and our server before it."""

    plane: ControlPlane
    caller: Caller
    made: list[Attempt] = field(default_factory=list)

    def create(self, shape: Shape = SHAPE) -> Attempt:
        attempt = self.caller.create(shape=shape)
        self.caller.succeeded(attempt)
        self.made.append(attempt)
        until(lambda: len(self.pods(attempt)) == MEMBERS, 60, lambda: str(self.names(attempt)))
        return attempt

    def pods(self, attempt: Attempt) -> Sequence[Any]:
        """In the order of their names: the master, then the workers."""
        found = self.plane.admin.items(
            pods(NAMESPACE), labelSelector=f"training.kubeflow.org/job-name={attempt.job}"
        )
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def groups(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in self.plane.admin.items(GROUPS)}

    def names(self, attempt: Attempt) -> Sequence[str]:
        return [each["metadata"]["name"] for each in self.pods(attempt)]

    def placed(self, attempt: Attempt) -> int:
        return sum("nodeName" in each["spec"] for each in self.pods(attempt))

    def queue(self, *attempts: Attempt) -> None:
        """Let their pods come to the scheduler in turns."""
        for turn in zip(*map(self.names, attempts), strict=True):
            for name in turn:
                self.plane.admin.patch(pods(NAMESPACE, name), {"spec": {"schedulingGates": None}})
                until(
                    lambda name=name: self._is_looked_at(name),
                    30,
                    lambda name=name: f"nobody looks at {name}",
                )

    def _is_looked_at(self, name: str) -> bool:
        pod = self.plane.admin.get(pods(NAMESPACE, name))
        assert pod is not None
        conditions = {each["type"]: each for each in pod["status"].get("conditions", ())}
        return conditions.get("PodScheduled", {}).get("reason") != "SchedulingGated" and (
            "PodScheduled" in conditions or "nodeName" in pod["spec"]
        )

    def finish(self, attempt: Attempt) -> None:
        for name in self.names(attempt):
            self.plane.admin.patch(pods(NAMESPACE, name), {"metadata": {"annotations": {RUN: "100ms"}}})

    def until_told(self, attempt: Attempt, phase: str) -> Said:
        until(lambda: self.caller.get(attempt).phase == phase, 60, lambda: str(self.caller.get(attempt)))
        return self.caller.get(attempt)

    def clear(self) -> None:
        for attempt in self.made:
            self.caller.delete(attempt)
        until(lambda: not self.plane.admin.items(pods(NAMESPACE)), 60, lambda: "pods are left")
        until(lambda: not self.plane.admin.items(GROUPS), 60, lambda: "groups are left")


Begin = Callable[[str, str], Scene]


@pytest.fixture
def begin(plane: ControlPlane, training_operator: Process, tmp_path: Path) -> Iterator[Begin]:
    """Gives a scene with this scheduler, and who makes its groups."""
    with ExitStack() as stack:

        def begun(scheduler: str, style: str = "") -> Scene:
            if style == "operator":
                stack.enter_context(ganging(training_operator))
            said = SETTINGS.format(scheduler=scheduler, style=f", style: {style}" if style else "")
            folder = tmp_path / f"{scheduler}{style}"
            folder.mkdir()
            (folder / "settings.yaml").write_text(said)
            served = stack.enter_context(Backend(plane, folder, "--settings", str(folder / "settings.yaml")))
            caller = stack.enter_context(Caller(served.endpoint, folder, NAMESPACE))
            return Scene(plane=plane, caller=caller)

        backend.permit(plane)
        plane.namespace(NAMESPACE)
        yield begun


@contextmanager
def ganging(training_operator: Process) -> Iterator[None]:
    """The operator makes a group of every job."""
    flag = f"--gang-scheduler-name={COSCHEDULING}"
    training_operator.stop()
    training_operator.command.append(flag)
    training_operator.start()
    try:
        yield
    finally:
        training_operator.stop()
        training_operator.command.remove(flag)
        training_operator.start()


def test_one_by_one_two_jobs_block_each_other_and_as_gangs_they_take_turns(begin: Begin) -> None:
    scene = begin("none", "")
    both = scene.create(), scene.create()
    scene.queue(*both)
    # Eight of ten have a place, and neither job has all of its own: for ever.
    assert [*map(scene.placed, both)] == [4, 4]
    for attempt in both:
        said = scene.until_told(attempt, "WAITING_FOR_RESOURCES").message
        lacking = (
            "worker-3 waiting for a node: no node of 4 fits: 4 lack nvidia.com/gpu (4 of 5 replicas ready)"
        )
        assert said.startswith(lacking), said
    scene.clear()
    take_turns(begin("coscheduling", "plugin"))


def test_they_do_so_too_where_the_operator_makes_the_groups(begin: Begin) -> None:
    take_turns(begin("coscheduling", "operator"))


def take_turns(scene: Scene) -> None:
    both = scene.create(), scene.create()
    wanted = {"minMember": MEMBERS, "minResources": {"cpu": "5", "memory": "5Gi", "nvidia.com/gpu": "10"}}
    groups = scene.groups()
    assert groups.keys() == {attempt.job for attempt in both}
    for attempt in both:
        group = groups[attempt.job]
        assert {key: group["spec"][key] for key in wanted} == wanted
        assert [each["uid"] for each in group["metadata"]["ownerReferences"]] == [attempt.uid]
    scene.queue(*both)
    until(lambda: MEMBERS in map(scene.placed, both), 60, lambda: str([*map(scene.placed, both)]))
    other, one = sorted(both, key=scene.placed)
    scene.until_told(one, "RUNNING")
    said = scene.until_told(other, "WAITING_FOR_RESOURCES").message
    assert "waiting for a node: the cluster lacks 4 nvidia.com/gpu for the whole gang" in said
    assert scene.placed(other) == 0
    scene.finish(one)
    scene.until_told(one, "SUCCEEDED")
    scene.until_told(other, "RUNNING")
    assert scene.placed(other) == MEMBERS
    # Whoever has made it: a scheduler would keep room for a group that is left.
    until(lambda: scene.groups().keys() == {other.job}, 30, lambda: str(scene.groups().keys()))
    scene.clear()


def test_a_group_of_ours_that_somebody_deletes_is_made_again(begin: Begin) -> None:
    scene = begin("coscheduling", "plugin")
    attempt = scene.create()
    before = scene.groups()[attempt.job]
    scene.plane.admin.delete(f"{GROUPS}/{attempt.job}")
    until(lambda: attempt.job in scene.groups(), 30, lambda: "it is not made again")
    again = scene.groups()[attempt.job]
    assert again["metadata"]["uid"] != before["metadata"]["uid"]
    assert again["spec"] == before["spec"]
    scene.queue(attempt)
    scene.until_told(attempt, "RUNNING")
    scene.clear()


def test_an_elastic_job_begins_when_its_fewest_have_a_place_and_the_others_join_it(begin: Begin) -> None:
    scene = begin("coscheduling", "plugin")
    first = scene.create()
    scene.queue(first)
    scene.until_told(first, "RUNNING")
    # For three of its five there is room.
    elastic = scene.create(ELASTIC)
    assert scene.groups()[elastic.job]["spec"]["minMember"] == 2
    until(lambda: scene.placed(elastic) == 3, 60, lambda: str(scene.placed(elastic)))
    scene.finish(first)
    until(lambda: scene.placed(elastic) == MEMBERS, 60, lambda: str(scene.placed(elastic)))
    scene.until_told(elastic, "RUNNING")
    scene.clear()
