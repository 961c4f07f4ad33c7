"""A platform with our server: creates jobs, observes them, ends them and cleans up."""

import contextlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from rig import kubelet
from rig.api import has_condition, jobs, pods
from rig.backend import Backend
from rig.caller import Caller, CallerAttempt
from rig.fake_nodes import RUN
from rig.process import wait_for
from rig.yunikorn import APPLICATION, TASK_GROUPS

from gangs.expected_messages import is_message_of_event
from gangs.scheduler_clusters import NAMESPACE, Ground, Platform, with_installation

GROUPS = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = f"{QUEUES}/namespaces/{NAMESPACE}/workloads"
_TRIES = 6  # The limit for timeouts of one call in a row, on a machine that other programs use.


@dataclass(kw_only=True)
class Scene:
    ground: Ground
    platform: Platform
    folder: Path
    served: Backend
    caller: Caller
    made: list[CallerAttempt] = field(default_factory=list)

    @property
    def plane(self):
        return self.ground.plane

    @contextlib.contextmanager
    def saying(self, **gang):
        """Yield a scene on the same platform with additional gang settings."""
        platform = replace(self.platform, gang={**self.platform.gang, **gang})
        with staged(self.ground, platform, self.folder / "saying") as scene:
            yield scene

    @contextlib.contextmanager
    def watched(self):
        folder = self.folder / "watched"
        folder.mkdir(exist_ok=True)
        with Backend(self.plane, folder, settings=self.platform.settings):
            yield

    def create(self, shape, attempt=None):
        attempt = self.caller.create(attempt, shape)
        self.made.append(attempt)
        return attempt

    def pods(self, attempt):
        """Return the pods of a job by name: the master, then the workers."""
        found = self.plane.admin.items(
            pods(NAMESPACE), labelSelector=f"training.kubeflow.org/job-name={attempt.job}"
        )
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def placed(self, attempt):
        return sum("nodeName" in each["spec"] for each in self.pods(attempt))

    def all_pods(self):
        """Return the names of all pods, including placeholder pods."""
        return [each["metadata"]["name"] for each in self._items(pods(NAMESPACE))]

    def groups(self):
        return self._items(GROUPS)

    def ganged(self, attempt):
        """Return the objects that make the job a gang, as text."""
        groups = [each for each in self.groups() if _is_owned(each, attempt)]
        ours = any("kfpytorch.flyte.org/job" in each["metadata"].get("labels", {}) for each in groups)
        marks = [each["metadata"].get("annotations", {}) for each in self.pods(attempt)]
        made = {
            "our PodGroup": bool(groups) and ours,
            "the operator's PodGroup": bool(groups) and not ours,
            "Workload": any(_is_owned(each, attempt) for each in self._items(WORKLOADS)),
            "task groups": all(TASK_GROUPS in each for each in marks),
        }
        return ", ".join(each for each, is_there in made.items() if is_there)

    def scheduler(self, attempt):
        return ", ".join({each["spec"]["schedulerName"] for each in self.pods(attempt)})

    def held(self, attempt):
        """Return the number of placeholder pods that are bound for it."""
        listed = self.plane.admin.items(pods(NAMESPACE), labelSelector=f"{APPLICATION}={attempt.job}")
        return sum(_holds_a_place(each) and "nodeName" in each["spec"] for each in listed)

    def companions(self):
        """Return the names of the jobs that have a PodGroup or a Workload."""
        found = (*self._items(GROUPS), *self._items(WORKLOADS))
        return {owner["name"] for each in found for owner in each["metadata"]["ownerReferences"]}

    def reserving(self):
        """Return the names of PodGroups, unfinished Workloads and placeholder pods, which reserve room."""
        waiting = [each for each in self._items(WORKLOADS) if not has_condition(each, "Finished")]
        holding = [each for each in self._items(pods(NAMESPACE)) if _holds_a_place(each)]
        return [each["metadata"]["name"] for each in (*self._items(GROUPS), *waiting, *holding)]

    def _items(self, path):
        answer = self.plane.admin.request("GET", path)
        return answer.json()["items"] if answer.is_success else []

    def finish(self, attempt):
        """Let the pods of a job succeed, and write the outputs of its task."""
        self.caller.succeeded(attempt)
        for pod in self.pods(attempt):
            path = pods(NAMESPACE, pod["metadata"]["name"])
            self.plane.admin.patch(path, {"metadata": {"annotations": {RUN: "100ms"}}})

    def fail(self, pod):
        kubelet.end(self.plane.admin, pod, 1)

    def until_placed(self, attempt, count):
        wait_for(lambda: self.placed(attempt), lambda placed: placed == count)

    def hears(self, attempt, event):
        """Wait until the message begins as `expected_messages` specifies for this event and platform."""

        def hear():
            response = self.caller.get(attempt)
            # A rejected task has no job.
            text = f"{response.phase} {response.message}".replace(attempt.job or "JOB", "JOB")
            # Reports of a scheduler that are old contain their time.
            return re.sub(r" free at \d\d:\d\d:\d\d UTC", " free", text)

        # The message changes while pods are created and scheduled.
        wait_for(hear, lambda text: is_message_of_event(text, event, self.platform.name))

    def turns(self, attempt):
        """Return the events of our server about the job, oldest first."""
        found = self.plane.admin.items(EVENTS, fieldSelector=f"involvedObject.name={attempt.job}")
        ours = [each for each in found if each.get("reportingComponent") == "kfpytorch"]
        return sorted(ours, key=lambda each: int(each["metadata"]["resourceVersion"]))

    def until_turned(self, attempt, *reasons):
        """Wait until the events of the job have these reasons, and return the last message."""
        turns = wait_for(
            lambda: self.turns(attempt), lambda turns: [each["reason"] for each in turns] == [*reasons]
        )
        return str(turns[-1]["message"])

    def until_told(self, attempt, phase, part=""):
        self.caller.wait_for(attempt, phase, part=part)

    def clear(self):
        # Delete waiting jobs first: YuniKorn miscounts room that it gives to a gang during deletion.
        for attempt in reversed(self.made):
            self.caller.delete(attempt)
            # Names of placeholder pods start with a part of the job name. A rejected task has no job.
            part = attempt.job[:28] or "no job"
            wait_for(self.all_pods, lambda names, part=part: part not in str(names))
        for path in (jobs(NAMESPACE), pods(NAMESPACE), GROUPS, WORKLOADS):
            wait_for(lambda path=path: self._items(path), lambda items: not items)
        self.made.clear()


@contextlib.contextmanager
def staged(ground, platform, folder):
    """Connect our server to a platform, and delete all jobs at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if platform.name == "coscheduling-operator":
            stack.enter_context(ground.grouping())
        stack.enter_context(with_installation(ground.plane, platform.shows, NAMESPACE))
        served = stack.enter_context(Backend(ground.plane, folder, settings=platform.settings))
        caller = stack.enter_context(Caller(served.endpoint, folder, NAMESPACE, tries=_TRIES))
        scene = Scene(ground=ground, platform=platform, folder=folder, served=served, caller=caller)
        try:
            yield scene
        finally:
            scene.clear()


def _is_owned(manifest, attempt):
    return any(each["uid"] == attempt.uid for each in manifest["metadata"].get("ownerReferences", ()))


def _holds_a_place(pod):
    return "internal.yunikorn.apache.org/placeholder" in pod["metadata"].get("annotations", {})
