"""A model of an API server and its garbage collector for PyTorchJobs, and of the events that change it.

All stored values are immutable, so a copy of a world only copies its mappings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from backend_plugin.core.errors import RequestRejected
from backend_plugin.embedded.admission import admit_pod
from backend_plugin.embedded.objects import merge_patch
from backend_plugin.embedded.operators.pytorchjob.admission import SCHEMA

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
NAMESPACE = "ns"
ENDED = ("Succeeded", "Failed")
AWAY = RequestRejected(
    500,
    "InternalError",
    'Internal error occurred: failed calling webhook "validator.pytorchjob.training-operator.kubeflow.org":'
    ' failed to call webhook: Post "https://127.0.0.1:9443/validate-kubeflow-org-v1-pytorchjob?timeout=10s":'
    " dial tcp 127.0.0.1:9443: connect: connection refused",
)

Manifest = Mapping[str, Any]


@dataclass
class World:
    """The stored objects, and the state of the operator."""

    spec: Manifest  # The job manifest of every `create`, with its metadata.
    bound: bool  # True if pods are bound to a node, and therefore terminate after a delay.
    now: datetime = BEGAN
    job: Manifest | None = None
    cached: Manifest | None = None  # The job in the operator's cache.
    pods: dict[str, Manifest] = field(default_factory=dict)
    services: dict[str, Manifest] = field(default_factory=dict)
    incarnations: dict[str, int] = field(default_factory=dict)
    times: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The start and completion times until now."""
    most_pods: int | None = None
    made: int = 0
    uid: str = ""  # The uid of the last job.
    last_status: Manifest | None = None  # The status of the last deleted job.
    refused: tuple[Mapping[str, Any], ...] = ()  # API errors during this step.
    missing: tuple[str, ...] = ()  # Missing pods during this step.
    is_awake: bool = False  # True if an event requires a pass of the operator.
    is_retrying: bool = False  # True if the last pass failed, so that the operator may retry at any time.
    is_away: bool = False
    is_quota_late: bool = False  # True if the quota still counts ended pods.
    is_stormy: bool = False
    """True if the operator creates and deletes pods without end, so that their number is unknown."""
    before: Manifest | None = None
    """The job before the operator's last write. The cache may still contain it."""
    wake_at: datetime | None = None

    def copy(self, **changes: Any) -> "World":
        mappings = {name: dict(getattr(self, name)) for name in ("pods", "services", "incarnations", "times")}
        return replace(self, **mappings, **changes)

    # ---- users and kubelets

    def do(self, step: Manifest) -> None:
        for moment in self.moments(step):
            moment(self)

    def moments(self, step: Manifest) -> list[Callable[["World"], None]]:
        """Return the changes of a step, in order. The operator may reconcile between two of them."""
        arguments = {key: value for key, value in step.items() if key != "op"}
        name = self._name(arguments.get("pod", ""))
        match step["op"]:
            case "pods":
                return [lambda world, each=each: world.report(each) for each in arguments["set"]]
            case "dying":
                return [
                    lambda world, name=name: world.die(name, arguments["exit"])
                    for name, pod in self.pods.items()
                    if is_terminating(pod)
                ]
            case "delete_pod" if self._dies_at_once(name):
                return [lambda world: world.begin_deletion(name), lambda world: world.remove_pod(name)]
            case op:
                return [lambda world: getattr(world, "_" + op)(**arguments)]

    def _create(self) -> None:
        self._attempt("create", self._make_job)

    def _make_job(self) -> None:
        self._require_webhook()
        admitted = SCHEMA.prune_object(self.spec)
        self.job = {**admitted, "metadata": {**admitted["metadata"], **self._identity()}}
        self.uid = self.job["metadata"]["uid"]
        self.is_awake, self.cached = True, None

    def _touch(self) -> None:
        self._patch({"metadata": {"annotations": {"touched": str(self.now)}}})

    def _suspend(self, suspend: bool = True) -> None:
        self._patch({"spec": {"runPolicy": {"suspend": suspend}}})

    def _resume(self) -> None:
        self._suspend(suspend=False)

    def _scale(self, replicas: int, via: str) -> None:
        patch = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas}}}}
        if via == "spec" or self.job is None:
            self._patch(patch)
        else:
            self._put_job(merge_patch(self.job, patch))

    def _patch(self, patch: Manifest) -> None:
        self._attempt("patch", lambda: self._patch_job(patch))

    def _patch_job(self, patch: Manifest) -> None:
        if self.job is None:
            name = self.spec["metadata"]["name"]
            raise RequestRejected(404, "NotFound", f'pytorchjobs.kubeflow.org "{name}" not found')
        self._require_webhook()
        self._put_job(SCHEMA.prune_object(merge_patch(self.job, patch)))

    def _require_webhook(self) -> None:
        """Raise an error while the operator is away, because its webhook validates each request."""
        if self.is_away:
            raise AWAY

    def _attempt(self, what: str, do: Any) -> None:
        try:
            do()
        except RequestRejected as refusal:
            fields = ("code", "reason", "message")
            self.refused += ({"what": what, **{name: getattr(refusal, name) for name in fields}},)

    def report(self, change: Manifest) -> None:
        short = change["pod"]
        self._if_present(
            self.pods,
            short,
            lambda name: self._attempt(f"status {short}", lambda: self._report(name, change)),
        )

    def _if_present(self, stored: Manifest, short: str, do: Callable[[str], None]) -> None:
        if self._name(short) in stored:
            do(self._name(short))
        else:
            self.missing += (short,)

    def _report(self, name: str, change: Manifest) -> None:
        pod = self.pods[name]
        status = pod_status(pod, change)
        _check_containers(pod, status)
        if self.bound and "unschedulable" not in change:
            pod = {**pod, "spec": {**pod["spec"], "nodeName": "node"}}
        self._put_pod({**pod, "status": status})

    def _delete_pod(self, pod: str) -> None:
        self._if_present(self.pods, pod, self.delete_pod)

    def die(self, name: str, code: int) -> None:
        if name in self.pods:
            change = {"phase": "Failed" if code else "Succeeded", "exit": code}
            self._put_pod({**self.pods[name], "status": pod_status(self.pods[name], change)})

    def _reap(self) -> None:
        for name, pod in list(self.pods.items()):
            if is_terminating(pod):
                self.remove_pod(name)

    def _delete_service(self, service: str) -> None:
        self._if_present(self.services, service, self.delete_service)

    def _patch_pod(self, pod: str, patch: Manifest) -> None:
        self._put_pod(merge_patch(self.pods[self._name(pod)], patch))

    def _foreign_pod(self, pod: str) -> None:
        metadata = {"name": self._name(pod), "namespace": NAMESPACE}
        spec = {"containers": [{"name": "c", "image": "c"}]}
        self.create_pod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def _quota(self, hard: Manifest | None) -> None:
        self.most_pods = None if hard is None else int(hard["pods"])

    def _wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _delete_job(self, propagation: str) -> None:
        if propagation == "Orphan" and self.job is not None:
            self.pods = {name: _orphan(pod) for name, pod in self.pods.items()}
            self.services = {name: _orphan(service) for name, service in self.services.items()}
        self.delete_job()

    def _restart_operator(self, while_down: list[Manifest]) -> None:
        self.is_away = True
        for step in while_down:
            self.do(step)
        self.is_away = False
        self.cached, self.is_awake = None, True  # A restarted operator has an empty cache.

    # ---- requests of the operator

    def create_pod(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        if name in self.pods:
            raise RequestRejected(409, "AlreadyExists", f'pods "{name}" already exists')
        if manifest["spec"].get("priorityClassName"):
            raise RequestRejected(403, "Forbidden", "no PriorityClass with that name was found")
        is_used = [self.is_quota_late or pod["status"]["phase"] not in ENDED for pod in self.pods.values()]
        if self.most_pods is not None and sum(is_used) >= self.most_pods:
            raise RequestRejected(403, "Forbidden", "exceeded quota")
        admitted = _with_pull_policies(admit_pod(manifest))
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        self._put_pod({**admitted, "metadata": {**admitted["metadata"], **self._identity()}})

    def delete_pod(self, name: str) -> None:
        """Delete a pod. A running pod on a node waits for its kubelet."""
        if self._dies_at_once(name):
            self.remove_pod(name)
        elif not is_terminating(self.pods[name]):
            self.begin_deletion(name)

    def begin_deletion(self, name: str) -> None:
        if name in self.pods:
            pod = self.pods[name]
            self._put_pod({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": stamp(self.now)}})

    def create_service(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        if name in self.services:
            raise RequestRejected(409, "AlreadyExists", f'services "{name}" already exists')
        self.services[name] = _with_service_defaults(manifest)
        self.is_awake = True

    def delete_service(self, name: str) -> None:
        self.is_awake |= self._is_owned(self.services.pop(name))

    def delete_job(self) -> None:
        """Delete the job and the objects that it owns, as the garbage collector does."""
        if self.job is None:
            return
        owned = [name for name, pod in self.pods.items() if self._is_owned(pod)]
        self.services = {name: each for name, each in self.services.items() if not self._is_owned(each)}
        self.last_status = self.job.get("status", {})
        self.job = self.cached = None
        for name in owned:
            self.delete_pod(name)

    def put_status(self, status: Manifest) -> None:
        assert self.job is not None
        for name in ("startTime", "completionTime"):
            earlier = self.times.get(name, ())
            if name in status and status[name] not in earlier:
                self.times[name] = (*earlier, status[name])
        self.before = self.cached
        self._put_job({**self.job, "status": status})

    def _put_job(self, job: Manifest) -> None:
        if job != self.job:
            self.job = self.cached = job  # A write replaces the operator's copy, including its changes.
            self.is_awake = True

    def _put_pod(self, pod: Manifest) -> None:
        self.pods[pod["metadata"]["name"]] = pod
        self.is_awake |= self._is_owned(pod)

    def remove_pod(self, name: str) -> None:
        if name in self.pods:
            self.is_awake |= self._is_owned(self.pods.pop(name))

    def _dies_at_once(self, name: str) -> bool:
        pod = self.pods.get(name)
        if pod is None or is_terminating(pod):
            return False
        return not pod["spec"].get("nodeName") or pod["status"]["phase"] in ENDED

    def _is_owned(self, manifest: Manifest) -> bool:
        owners = manifest["metadata"].get("ownerReferences", [])
        return self.job is not None and any(o["uid"] == self.job["metadata"]["uid"] for o in owners)

    def _identity(self) -> Manifest:
        self.made += 1
        return {"uid": f"uid-{self.made}", "creationTimestamp": stamp(self.now)}

    def _name(self, short: str) -> str:
        return f"{self.spec['metadata']['name']}-{short}"


def stamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def is_terminating(pod: Manifest) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _with_service_defaults(service: Manifest) -> Manifest:
    """Return a service with the defaults that the API server sets: the protocol and target of its ports."""
    ports = service["spec"].get("ports", ())
    defaulted = [{"protocol": "TCP", "targetPort": port["port"], **port} for port in ports]
    return {**service, "spec": {**service["spec"], "ports": defaulted}}


def _with_pull_policies(pod: Manifest) -> Manifest:
    """Return a pod whose init containers have the default pull policies of the API server."""
    before = [
        {"imagePullPolicy": "IfNotPresent" if ":" in each["image"] else "Always", **each}
        for each in pod["spec"].get("initContainers", ())
    ]
    return {**pod, "spec": {**pod["spec"], **({"initContainers": before} if before else {})}}


def _orphan(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": []}}


def pod_status(pod: Manifest, change: Manifest) -> Manifest:
    status: dict[str, Any] = {"phase": change["phase"]}
    if "pod_reason" in change:
        status |= {"reason": change["pod_reason"], "message": change.get("message", "")}
    if "unschedulable" in change:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status["conditions"] = [{**condition, "message": change["unschedulable"]}]
    elif change.get("containers", True):
        names = [container["name"] for container in pod["spec"]["containers"]]
        status["containerStatuses"] = [_container_status(name, change) for name in names]
        if "init_exit" in change or "init_waiting" in change:
            status["initContainerStatuses"] = [_init_status(change)]
    return status


def _container_status(name: str, change: Manifest) -> Manifest:
    state: Manifest = {"running": {}}
    has_ended = change["phase"] in ENDED or change.get("terminated_while_running")
    if "waiting" in change:
        state = {"waiting": {"reason": change["waiting"], "message": change.get("message", "")}}
    elif change["phase"] == "Pending" or "init_exit" in change:
        state = {"waiting": {"reason": "PodInitializing"}}
    elif has_ended:
        state = {"terminated": {"exitCode": change["exit"], "reason": change.get("reason", "Completed")}}
    return {"name": name, "restartCount": change.get("restarts", 0), "state": state}


def _init_status(change: Manifest) -> Manifest:
    state: Manifest = {"waiting": {"reason": change.get("init_waiting")}}
    if "init_exit" in change:
        state = {"terminated": {"exitCode": change["init_exit"], "reason": "Error"}}
    return {"name": "init-pytorch", "restartCount": 0, "state": state}


def _check_containers(pod: Manifest, status: Manifest) -> None:
    """Raise an error if an ended container becomes active although its restart policy forbids this."""
    policy = pod["spec"]["restartPolicy"]
    new = {each["name"]: each["state"] for each in status.get("containerStatuses", ())}
    wrong = []
    for index, old in enumerate(pod["status"].get("containerStatuses", ())):
        terminated = old["state"].get("terminated")
        may_restart = policy == "Always" or (policy == "OnFailure" and (terminated or {}).get("exitCode"))
        if terminated and not may_restart and "terminated" not in new.get(old["name"], {"terminated": 0}):
            path = f"status.containerStatuses[{index}].state"
            wrong.append(f"{path}: Forbidden: may not be transitioned to non-terminated state")
    if wrong:
        summary = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
        raise RequestRejected(422, "Invalid", f'Pod "{pod["metadata"]["name"]}" is invalid: {summary}')
