"""Random histories of jobs, from a small model of the training operator and its pods.

The model follows the operator's observed behaviour. Conditions replace each other, a new pod has the name of
the old one, and suspension keeps `startTime`. Each history is a list of `Moment`s.
"""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def moment(seconds):
    return (BEGAN + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def a_condition(kind, status, reason, message, at):
    texts = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**texts, "lastTransitionTime": moment(at)}


@dataclass
class HistoryPod:
    job: str
    role: str
    index: int
    created: int
    phase: str = "Pending"
    node: str = ""
    scheduled: tuple[str, str, int] | None = None
    deleted: int | None = None
    disrupted: str = ""
    reason: str = ""
    began: int | None = None
    ended: tuple[int, str, int] | None = None
    last: tuple[int, int] | None = None
    waiting: str = ""
    restarts: int = 0

    @property
    def name(self):
        return f"{self.job}-{self.role}-{self.index}"

    def manifest(self):
        conditions = []
        if self.scheduled is not None:
            status, message, at = self.scheduled
            reason = "" if status == "True" else "Unschedulable"
            conditions.append(a_condition("PodScheduled", status, reason, message, at))
        if self.disrupted:
            conditions.append({"type": "DisruptionTarget", "status": "True", "reason": self.disrupted})
        labels = {"job-name": self.job, "replica-type": self.role, "replica-index": str(self.index)}
        metadata = {
            "name": self.name,
            "creationTimestamp": moment(self.created),
            "labels": {f"training.kubeflow.org/{key}": value for key, value in labels.items()},
        }
        if self.deleted is not None:
            metadata |= {"deletionTimestamp": moment(self.deleted + 30), "deletionGracePeriodSeconds": 30}
        return {
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"nodeName": self.node},
            "status": {
                "phase": self.phase,
                "reason": self.reason,
                "conditions": conditions,
                "containerStatuses": [self._container()] if self.node and self.reason != "NodeLost" else [],
            },
        }

    def _container(self):
        status = {"name": "pytorch", "image": "train:1", "restartCount": self.restarts}
        if self.ended is not None:
            code, reason, at = self.ended
            times = {"startedAt": moment(self.began or 0), "finishedAt": moment(at)}
            status["state"] = {"terminated": {"exitCode": code, "reason": reason, **times}}
        elif self.began is not None:
            status["state"] = {"running": {"startedAt": moment(self.began)}}
        else:
            status["state"] = {"waiting": {"reason": self.waiting or "ContainerCreating"}}
        if self.last is not None:
            code, at = self.last
            status["lastState"] = {"terminated": {"exitCode": code, "finishedAt": moment(at)}}
        return status


@dataclass
class Moment:
    """The observed state at one moment, and facts about the model at that moment."""

    observed: dict[str, Any]
    now: datetime
    job_ended: str  # ``NodeSucceeded``, ``Failed``, ``gone`` or empty.
    blamed: frozenset[str]  # The causes of failed replicas until now: ``user``, ``infra``.
    outlived: bool  # True if each worker that wrote an error has succeeded since.


@dataclass
class HistoryWorld:
    """A model of one job with the operator, the scheduler, the kubelets and the users."""

    dice: random.Random
    now: int = 0
    pods: dict[tuple[str, int], HistoryPod] = field(default_factory=dict)
    conditions: dict[str, dict[str, str]] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    started: int | None = None
    completed: int | None = None
    suspend: bool = False
    generation: int = 1
    gone: bool = False
    blamed: set[str] = field(default_factory=set)

    def __post_init__(self):
        dice = self.dice
        self.master = dice.random() < 0.6
        self.workers = dice.randint(0 if self.master else 1, 4)
        self.policy = dice.choice(["Never", "Never", "OnFailure"])
        self.clean = dice.choice(["None", "Running", "All"])
        self.suspend = dice.random() < 0.25

    @property
    def replicas(self):
        return [("master", 0)] * self.master + [("worker", index) for index in range(self.workers)]

    @property
    def ended(self):
        terminal = [each for each in ("Failed", "Succeeded") if self.says(each)]
        return next(iter(terminal), "gone" if self.gone else "")

    def says(self, kind):
        return self.conditions.get(kind, {}).get("status") == "True"

    def write(self, kind, status="True", reason=""):
        if self.conditions.get(kind, {}).get("status") == status:
            return
        self.conditions.pop(kind, None)
        message = f"PyTorchJob job is {kind.lower()}."
        condition = a_condition(kind, status, reason or f"PyTorchJob{kind}", message, self.now)
        self.conditions[kind] = condition
        if status == "True":
            self.conditions.pop({"Running": "Restarting", "Restarting": "Running"}.get(kind, ""), None)

    # ---- the operator

    def reconcile(self):
        if self.gone:
            return
        self.write("Created")
        if self.ended:
            self.clean_up()
        elif self.suspend:
            for pod in self.pods.values():
                pod.deleted = self.now if pod.deleted is None else pod.deleted
            if self.says("Running"):
                self.write("Running", "False", "PyTorchJobSuspended")
            self.write("Suspended")
        else:
            self.reconcile_pods()

    def reconcile_pods(self):
        if self.says("Suspended"):
            self.write("Suspended", "False", "PyTorchJobResumed")
            self.started = self.now
        for place in self.replicas:
            if place not in self.pods:
                self.pods[place] = HistoryPod("job", *place, created=self.now)
        self.started = self.now if self.started is None else self.started
        if not self.replace_failed():
            self.look_for_the_end()

    def replace_failed(self):
        """Replace failed replicas, or return True if a failed replica ended the job."""
        for place in self.replicas:
            pod = self.pods[place]
            failed = pod.phase == "Failed" or (pod.phase == "Running" and pod.deleted is not None)
            if failed and self.policy == "Never":
                self.finish("Failed")
                return True
            if failed:
                pod.deleted = self.now if pod.deleted is None else pod.deleted
                self.write("Restarting")
        return False

    def look_for_the_end(self):
        leaders = [self.pods["master", 0]] if self.master else list(self.pods.values())
        if all(pod.phase == "Succeeded" for pod in leaders):
            self.finish("Succeeded")
        elif any(pod.phase == "Running" and pod.deleted is None for pod in leaders):
            self.write("Running")

    def finish(self, kind):
        self.write(kind)
        if self.says("Running"):
            self.conditions["Running"]["status"] = "False"
        self.completed = self.now

    def clean_up(self):
        phases = {"All": ("Pending", "Running", "Succeeded", "Failed"), "Running": ("Pending", "Running")}
        for pod in self.pods.values():
            if pod.deleted is None and pod.phase in phases.get(self.clean, ()):
                pod.deleted = self.now

    # ---- all other actors

    def happen(self):
        self.now += self.dice.randint(2, 40)
        living = [pod for pod in self.pods.values() if pod.deleted is None]
        pod = self.dice.choice(living) if living else None
        acts = [self.reconcile] * 4 + [self.reap]
        if pod is not None and not self.gone:
            acts += [lambda: self.change_pod(pod)] * 8
        if not self.ended and self.dice.random() < 0.3:
            acts.append(self.flip)
        if self.ended and self.dice.random() < 0.1:
            acts.append(self.expire)
        self.dice.choice(acts)()

    def flip(self):
        self.suspend = not self.suspend
        self.generation += 1

    def expire(self):
        self.gone = True
        self.pods.clear()

    def reap(self):
        self.pods = {place: pod for place, pod in self.pods.items() if pod.deleted is None}

    def change_pod(self, pod):
        if pod.phase == "Pending":
            self.change_pending_pod(pod)
        elif pod.phase == "Running":
            self.change_running_pod(pod)

    def change_pending_pod(self, pod):
        if not pod.node and self.dice.random() < 0.4:
            message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: no."
            pod.scheduled = ("False", message, self.now)
        elif not pod.node:
            pod.node, pod.scheduled = "node-1", ("True", "", self.now)
        elif self.dice.random() < 0.2:
            pod.waiting = "ErrImagePull"
        else:
            pod.phase, pod.began = "Running", self.now

    def change_running_pod(self, pod):
        end = self.dice.choice(["well", "well", "well", "user", "user", "oom", "evicted", "node", "drained"])
        if end == "well":
            pod.phase, pod.ended = "Succeeded", (0, "Completed", self.now)
        elif end == "user":
            self.fail(pod)
        elif end == "drained":
            pod.deleted, pod.disrupted = self.now, "EvictionByEvictionAPI"
        else:
            reason = {"oom": "", "evicted": "Evicted", "node": "NodeLost"}[end]
            pod.phase, pod.reason = "Failed", reason
            pod.ended = (137, "OOMKilled" if end == "oom" else "Error", self.now)
        if end not in ("well", "user"):
            self.blamed.add("infra")

    def fail(self, pod):
        """Let the user's code raise an error, write an error file and end its worker."""
        self.blamed.add("user")
        name = self.dice.choice(("ValueError", "KeyError", "ImportError"))
        error = {
            "code": f"USER:{name}",
            "message": f"Trace:\n\n    Traceback (most recent call last):\n\nMessage:\n\n    {name}: no data",
            "kind": "NON_RECOVERABLE",
            "origin": "USER",
            "timestamp": moment(self.now - 0.5),
            "worker": pod.name,
        }
        self.files.append({"path": f"s3://bucket/error-{len(self.files)}.pb", "error": error, "pod": pod})
        if self.policy == "OnFailure":
            pod.last, pod.began, pod.restarts = (1, self.now), self.now, pod.restarts + 1
        else:
            pod.phase, pod.ended = "Failed", (1, "Error", self.now)

    def moment(self):
        counts = {"Master": int(self.master), "Worker": self.workers}
        job = {
            "kind": "PyTorchJob",
            "metadata": {
                "name": "job",
                "namespace": "ns",
                "creationTimestamp": moment(0),
                "generation": self.generation,
            },
            "spec": {
                "runPolicy": {"suspend": self.suspend, "cleanPodPolicy": self.clean},
                "pytorchReplicaSpecs": {role: {"replicas": count} for role, count in counts.items() if count},
            },
            "status": {
                "conditions": [dict(each) for each in self.conditions.values()],
                "startTime": None if self.started is None else moment(self.started),
                "completionTime": None if self.completed is None else moment(self.completed),
            },
        }
        succeeded = [pod for pod in self.pods.values() if pod.phase == "Succeeded" and pod.ended]
        ended_well = {pod.name for pod in succeeded if pod.deleted is None or pod.ended[2] <= pod.deleted}
        return Moment(
            observed={
                "job": None if self.gone else job,
                "pods": [pod.manifest() for pod in self.pods.values()],
                "error_files": [{"path": each["path"], "error": each["error"]} for each in self.files],
                "outputs": self.says("Succeeded"),
            },
            now=BEGAN + timedelta(seconds=self.now + 1),
            job_ended=self.ended,
            blamed=frozenset(self.blamed),
            outlived=all(each["error"]["worker"] in ended_well for each in self.files),
        )


def history(seed, steps=60):
    """Yield the moments of one job. Equal seeds give equal histories."""
    world = HistoryWorld(random.Random(seed))
    for _ in range(steps):
        world.happen()
        yield world.moment()
