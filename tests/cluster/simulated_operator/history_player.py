"""Plays one history: performs its steps in a namespace, as users, admins and kubelets would."""

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from rig.api import Api, build_manifest, jobs, path_of, pods
from stored_world import is_terminating, pod_status

from simulated_operator.idle_detection import Pulse
from simulated_operator.mirror import Mirror, Stage
from simulated_operator.recorded_format import observed
from simulated_operator.specs import SOON

Step = Mapping[str, Any]
_TICK: Final = 0.1
# Timestamps have whole seconds, so steps must be further apart.
_STEP: Final = 1.1
# The time by which a job with a short TTL is deleted.
_EXPIRES: Final = SOON + 2.2
# More changes than any step requires: the operator creates and deletes a pod in an endless loop.
_STORM: Final = 80
_PATIENCE: Final = 180
_NODE: Final = "node"
_ORPHAN: Final = "orphan"
"""The finalizer of a job that is deleted without its pods."""
_CONTAINERS: Final = ("containerStatuses", "initContainerStatuses")


@dataclass
class Player:
    """A history that is being played."""

    api: Api
    mirror: Mirror
    pulse: Pulse
    history: Mapping[str, Any]
    namespace: str
    restart: Callable[[Callable[[], None]], None]
    """Stops the operator, calls the argument and starts the operator."""
    began: float = field(default_factory=time.monotonic)
    refused: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def play(self) -> dict[str, Any]:
        """Play all steps, and return the history with the observed states."""
        steps = [{"do": step["do"], "observed": self._step(step["do"])} for step in self.history["steps"]]
        return {**self.history, "steps": steps}

    def _step(self, do: Step) -> dict[str, Any]:
        self.refused, self.missing = [], []
        begun = self._elapsed()
        with self.mirror.stage(self.namespace) as stage:
            stage.change()
            before, had_job = stage.changes, stage.job is not None
        self._do(do)
        done = self._elapsed()

        def least(stage: Stage) -> float:
            """Return the earliest time to observe the state.

            A TTL has a precision of one second, so a job that expires is observed only after its deletion.
            """
            if not (had_job or stage.job) or not _expires(stage):
                return done + _STEP
            return done + _EXPIRES if stage.job is None else math.inf

        is_settled = self._settle(before, least)
        record = {**observed(self._get_observed(), self.namespace), "at": [begun, done, self._elapsed()]}
        problems = {"refused": self.refused, "missing": self.missing}
        return {**record, **{key: value for key, value in problems.items() if value}, "settled": is_settled}

    def _settle(self, before: int, least: Callable[[Stage], float]) -> bool:
        """Wait until the namespace is quiet and the time of `least` has come; False in an endless loop."""
        end = time.monotonic() + _PATIENCE
        while True:
            stage = self._get_observed()
            is_quiet = self.pulse.is_settled(stage) and _is_collected(stage)
            if is_quiet and self._elapsed() >= least(stage):
                return True
            if stage.changes - before > _STORM:
                return False
            assert time.monotonic() < end, f"{self.namespace} does not settle"
            time.sleep(_TICK)

    def _elapsed(self) -> float:
        return round(time.monotonic() - self.began, 3)

    def _get_observed(self) -> Stage:
        return self.mirror.build_stage(self.namespace)

    def _do(self, do: Step) -> None:
        arguments = {key: value for key, value in do.items() if key != "op"}
        getattr(self, "_" + do["op"])(**arguments)

    # ---- steps of users and admins

    def _create(self) -> None:
        fields = {key: self.history[key] for key in ("name", "labels", "annotations", "spec")}
        job = build_manifest("kubeflow.org/v1", "PyTorchJob", namespace=self.namespace, **fields)
        self._note("create", self.api.request("POST", path_of(job), job))

    def _touch(self) -> None:
        self._patch({"metadata": {"annotations": {"touched": str(time.time())}}})

    def _patch(self, patch: Step, to: str = "") -> None:
        self._merge("patch", jobs(self.namespace, self.history["name"]) + to, patch)

    def _suspend(self) -> None:
        self._patch({"spec": {"runPolicy": {"suspend": True}}})

    def _resume(self) -> None:
        self._patch({"spec": {"runPolicy": {"suspend": False}}})

    def _scale(self, replicas: int, via: str) -> None:
        if via == "spec":
            self._patch({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas}}}})
        else:
            self._patch({"spec": {"replicas": replicas}}, "/scale")

    def _delete_job(self, propagation: str) -> None:
        self.api.delete(jobs(self.namespace, self.history["name"]), propagation)

    def _delete_pod(self, pod: str) -> None:
        self._delete(pod, pods(self.namespace, self._name(pod)))

    def _delete_service(self, service: str) -> None:
        self._delete(service, f"/api/v1/namespaces/{self.namespace}/services/{self._name(service)}")

    def _patch_pod(self, pod: str, patch: Step) -> None:
        self.api.patch(pods(self.namespace, self._name(pod)), dict(patch))

    def _foreign_pod(self, pod: str) -> None:
        spec = {"containers": [{"name": "c", "image": "c"}]}
        self.api.create(build_manifest("v1", "Pod", self._name(pod), self.namespace, spec=spec))

    def _quota(self, hard: Step | None) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas/most"
        if hard is None:
            self.api.delete(path)
            return
        self.api.apply(build_manifest("v1", "ResourceQuota", "most", self.namespace, spec={"hard": hard}))
        while (self.api.get(path) or {}).get("status", {}).get("hard") != hard:
            time.sleep(_TICK)

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _restart_operator(self, while_down: list[Step]) -> None:
        def do() -> None:
            for step in while_down:
                self._do(step)
                # Give the operator's caches time to receive all changes and nothing else when it restarts.
                time.sleep(_TICK)

        self.restart(do)
        with self.mirror.stage(self.namespace) as stage:
            stage.change()

    # ---- steps of kubelets

    def _pods(self, set: list[Step]) -> None:  # noqa: A002 - the name of the format
        for change in set:
            pod = self._get_observed().pods.get(self._name(change["pod"]))
            if pod is None:
                self.missing.append(change["pod"])
            else:
                self._report(pod, change)

    def _report(self, pod: Step, change: Step) -> None:
        name = pod["metadata"]["name"]
        is_bound = pod["spec"].get("nodeName") or "unschedulable" in change
        if self.history["bound"] and not is_bound:
            metadata, target = {"name": name}, {"kind": "Node", "name": _NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
            self.api.request("POST", pods(self.namespace, name) + "/binding", binding)
        status = pod_status(pod, change)
        # A merge patch keeps keys that it does not name.
        nothing = dict.fromkeys(("reason", "message", "conditions", *_CONTAINERS))
        path = pods(self.namespace, name) + "/status"
        self._merge(f"status {change['pod']}", path, {"status": {**nothing, **status}}, missing=change["pod"])

    def _dying(self, exit: int) -> None:  # noqa: A002 - the name of the format
        for name, pod in self._get_observed().pods.items():
            if is_terminating(pod):
                change = {"phase": "Failed" if exit else "Succeeded", "exit": exit}
                path = pods(self.namespace, name) + "/status"
                self.api.try_patch(path, {"status": pod_status(pod, change)})

    def _reap(self) -> None:
        for name, pod in self._get_observed().pods.items():
            if is_terminating(pod):
                self.api.request("DELETE", pods(self.namespace, name), params={"gracePeriodSeconds": "0"})

    # ---- API requests

    def _name(self, short: str) -> str:
        return f"{self.history['name']}-{short}"

    def _delete(self, short: str, path: str) -> None:
        answer = self.api.request("DELETE", path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            self.missing.append(short)
        else:
            assert answer.is_success, answer.text

    def _merge(self, what: str, path: str, patch: Step, missing: str = "") -> None:
        self._note(what, self.api.try_patch(path, dict(patch)), missing)

    def _note(self, what: str, answer: httpx.Response, missing: str = "") -> None:
        if answer.is_success:
            return
        if missing and answer.status_code == httpx.codes.NOT_FOUND:
            self.missing.append(missing)
            return
        content = answer.json()
        message = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9443", content["message"])
        self.refused.append(
            {"what": what, "code": content["code"], "reason": content["reason"], "message": message}
        )


def _expires(stage: Stage) -> bool:
    """True if the job is deleted because of its TTL, or has been."""
    if stage.job is None:
        return bool((stage.last_status or {}).get("completionTime"))
    policy = stage.job["spec"].get("runPolicy", {})
    is_soon = policy.get("ttlSecondsAfterFinished") == SOON and not policy.get("suspend")
    return is_soon and "completionTime" in stage.job.get("status", {})


def _is_collected(stage: Stage) -> bool:
    """True if only terminating objects are left of deleted jobs."""
    job = stage.job
    if job is not None and is_terminating(job) and _ORPHAN in job["metadata"].get("finalizers", ()):
        return False  # The garbage collector has not orphaned its pods yet.
    there = [*stage.pods.values(), *stage.services.values()]
    owners = [
        owner["uid"]
        for each in there
        if not is_terminating(each)
        for owner in each["metadata"].get("ownerReferences", ())
    ]
    return set(owners) <= ({stage.uid} if stage.job is not None else set())
