"""Clusters with one gang scheduler each, and the platform settings that select it.

By default, a cluster has four nodes with four GPUs each. If it has queues, one has all GPUs and one has half
of them.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rig import backend, fake_nodes, kueue, operator, policies, scheduling, yunikorn
from rig.api import build_manifest
from rig.control_plane import MUTATING, ControlPlane, Options
from rig.process import Process, wait_for

GPU = "nvidia.com/gpu"
NAMESPACE = "gangs"
LIMIT = 8  # The GPU limit of the smaller queue.
_ROOM = {"cpu": "100", "memory": "500Gi"}
GANGED = f"--gang-scheduler-name={scheduling.COSCHEDULING}"
"""With this flag, the training operator creates a PodGroup for every job."""
LOW, HIGH = "low", "high"
_PRIORITIES = {LOW: 1, HIGH: 1000}
_SILENT = "default-scheduler"
OURS = {
    "coscheduling-backend": ("our PodGroup", scheduling.COSCHEDULING),
    "coscheduling-operator": ("the operator's PodGroup", scheduling.COSCHEDULING),
    "yunikorn": ("task groups", yunikorn.NAME),
    "kueue": ("Workload", _SILENT),
    "coscheduling-backend-kueue": ("our PodGroup, Workload", scheduling.COSCHEDULING),
}
"""The object that makes a job a gang on each platform, and the scheduler of its pods."""


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The configuration of an admin: a cluster and the gang settings."""

    ground: str
    gang: Mapping[str, str]  # The section `kfpytorch.gang` of the settings.
    smaller: str = ""  # The queue with half of the GPUs.
    alone: Mapping[str, Any] = field(default_factory=dict)
    """The pod template with which the same scheduler schedules pods one by one."""
    like: str = ""  # The platform that detection selects, if the settings leave it to detection.
    shows: Sequence[dict[str, Any]] = ()  # Objects of the cluster by which the scheduler is detected.

    @property
    def settings(self):
        return {"kfpytorch": {"gang": dict(self.gang)}}

    @property
    def name(self):
        """The name of the platform in the table of messages."""
        if self.like:
            return self.like
        parts = [self.gang[key] for key in ("scheduler", "pod-groups-by") if key in self.gang]
        return "-".join([*parts, "kueue"] if "local-queue" in self.gang else parts)


def deployment(*flags):
    """Return a Deployment with these flags of the operator, which is really a process of this machine."""
    labels = {"control-plane": "kubeflow-training-operator"}
    container = {"name": operator.MODULE, "image": "image:1", "command": ["/manager"], "args": list(flags)}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return [build_manifest("apps/v1", "Deployment", operator.MODULE, operator.NAMESPACE, spec=spec)]


def yunikorns_webhook(namespace):
    """Return a policy that sets the scheduler of pods that name none, as YuniKorn's webhook does."""
    patch = f'op: "replace", path: "/spec/schedulerName", value: "{yunikorn.NAME}"'
    condition = f"object.spec.schedulerName == '{_SILENT}'"
    return policies.alter("scheduler-of-all", namespace, ("", "pods"), patch, condition)


PLATFORMS = {
    "coscheduling-backend": Platform(
        ground="coscheduling", gang={"scheduler": "coscheduling", "pod-groups-by": "backend"}
    ),
    "coscheduling-operator": Platform(
        ground="coscheduling", gang={"scheduler": "coscheduling", "pod-groups-by": "operator"}
    ),
    "auto-coscheduling-operator": Platform(
        ground="coscheduling",
        gang={"scheduler": "auto"},
        like="coscheduling-operator",
        shows=deployment(GANGED),
    ),
    "yunikorn": Platform(
        ground="yunikorn",
        gang={"scheduler": "yunikorn", "queue": "root.team"},
        smaller="root.smaller",
        alone={
            "metadata": {"labels": {yunikorn.QUEUE: "root.team"}},
            "spec": {"schedulerName": yunikorn.NAME, "containers": []},
        },
    ),
    "auto-yunikorn": Platform(
        ground="yunikorn",
        gang={"scheduler": "auto", "queue": "root.team"},
        like="yunikorn",
        shows=yunikorns_webhook(NAMESPACE),
    ),
    "kueue": Platform(ground="kueue", gang={"scheduler": "kueue", "queue": "team"}, smaller="smaller"),
    # Kueue admits a job, and coscheduling binds its pods.
    "coscheduling-backend-kueue": Platform(
        ground="kueue", gang={"scheduler": "coscheduling", "pod-groups-by": "backend", "local-queue": "team"}
    ),
    "auto-both": Platform(
        ground="kueue",
        gang={"scheduler": "auto", "local-queue": "team"},
        like="coscheduling-backend-kueue",
        shows=deployment(),
    ),
}


@contextlib.contextmanager
def with_installation(plane, objects, namespace):
    """Create the objects by which a scheduler is detected, and wait until policies are in force."""
    with plane.admin.having(*objects):
        wanted = (
            yunikorn.NAME if any(each["kind"] == "MutatingAdmissionPolicy" for each in objects) else _SILENT
        )
        spec = {"containers": [{"name": "silent", "image": "image:1"}]}
        pod = build_manifest("v1", "Pod", "silent", namespace, spec=spec)

        wait_for(
            lambda: plane.admin.try_create(pod).json()["spec"]["schedulerName"], lambda name: name == wanted
        )
        yield


@dataclass(frozen=True, kw_only=True)
class Ground:
    plane: ControlPlane
    operator: Process

    @contextlib.contextmanager
    def grouping(self):
        """Restart the operator so that it creates a PodGroup for every job; undo this on exit."""
        self.operator.stop()
        self.operator.command.append(GANGED)
        self.operator.start()
        try:
            yield
        finally:
            self.operator.stop()
            self.operator.command.remove(GANGED)
            self.operator.start()


class Grounds:
    """The clusters; a context manager that starts each on first use and stops the last one.

    Only one cluster runs at a time. Linux allows 128 inotify instances per user, and each cluster uses about
    twelve.
    """

    def __init__(self, folder, nodes=4, gpus=4):
        self._folder = folder
        self._size = nodes, gpus
        self._stack = contextlib.ExitStack()
        self._started = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def __getitem__(self, name):
        if name not in self._started:
            self._stack.close()
            self._started.clear()
            self._started[name] = self._stack.enter_context(started(name, self._folder / name, *self._size))
        return self._started[name]


@contextlib.contextmanager
def started(name, folder, nodes, gpus):
    with ControlPlane(folder, Options(api_server=MUTATING)) as plane:
        process = operator.start(plane)
        fake_nodes.start(plane, nodes, {GPU: str(gpus)})
        plane.namespace(NAMESPACE)
        backend.permit(plane)
        for priority, value in _PRIORITIES.items():
            plane.admin.apply(build_manifest("scheduling.k8s.io/v1", "PriorityClass", priority, value=value))
        _STARTS[name](plane, nodes * gpus)
        yield Ground(plane=plane, operator=process)


def _yunikorn(plane, _):
    fifo = {"application.sort.policy": "fifo"}
    limit = {"max": {GPU: str(LIMIT)}}
    queues = [
        {"name": "team", "properties": fifo},
        {"name": "smaller", "properties": fifo, "resources": limit},
    ]
    yunikorn.start(plane, queues, "root.team")


def _kueue(plane, all_gpus):
    scheduling.start(plane)
    kueue.start(plane)
    for name, gpus in (("team", all_gpus), ("smaller", LIMIT)):
        preempts = {"preemption": {"withinClusterQueue": "LowerPriority"}}
        for manifest in kueue.quota(name, {**_ROOM, GPU: str(gpus)}, **preempts):
            plane.admin.apply(manifest)
        plane.admin.apply(kueue.local_queue(NAMESPACE, name, name))
    for name, value in _PRIORITIES.items():
        plane.admin.apply(kueue.priority(name, value))


_STARTS = {"coscheduling": lambda plane, _: scheduling.start(plane), "kueue": _kueue, "yunikorn": _yunikorn}
