"""Random histories: the embedded operators agree with training-operator, and with Trainer and JobSet.

A history is chosen while it is played in the embedded cluster, and then played in the real one. After each
step, the real state must become the embedded one. `KFPYTORCH_SEED=random` selects a random seed.
`tests/recorded` has further histories of PyTorchJobs, with rarer specs and steps.
"""

import asyncio
import json
import random
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from builders import a_run, a_template
from rig.api import path_of, pods
from rig.fake_nodes import BY_HAND
from rig.process import wait_until
from rig.seed import SEED

from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.pipeline import judge, plan
from backend_plugin.core.settings import read
from backend_plugin.embedded.events import EventRecorder
from backend_plugin.embedded.job_reconciler import JobReconciler
from backend_plugin.embedded.objects import Key, get_key, get_uid, is_tracked, merge_patch
from backend_plugin.embedded.operators.table import OPERATORS, admit_object, find_pod_operator
from backend_plugin.embedded.pod_addresses import PORT
from backend_plugin.embedded.pod_transitions import mark_evicted
from backend_plugin.embedded.pods import PodController
from backend_plugin.embedded.scheduling_cycle import Binding
from backend_plugin.embedded.store import Store

STEPS, AT_ONCE = 7, 8
FEW, MANY = range(24), (range(24, 124), range(124, 224), range(224, 324))
SECONDS = timedelta(seconds=5)
NAMESPACE = "histories"
AT = "2026-01-01T00:00:00Z"
EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}

Manifest = dict[str, Any]
State = Mapping[str, Any]
Step = tuple[str, str]  # What happens, and to which replica, such as `worker-0`; empty for the job.

pytestmark = pytest.mark.timeout(900)


def build_manifests(kind, number, chance):
    nodes, restarts = chance.randint(1, 3), chance.randint(0, 2)
    custom = {"workerReplicas": {"replicas": nodes, "restartPolicy": "RESTART_POLICY_ON_FAILURE"}}
    if kind == "TrainJob":
        # The training-operator does not count all restarts, and may exceed the limit.
        custom["runPolicy"] = {"backoffLimit": restarts}
    if chance.random() < 0.5:
        limits = {"minReplicas": chance.randint(1, nodes), "maxReplicas": nodes}
        custom["elasticConfig"] = {**limits, "nprocPerNode": 1, "rdzvBackend": "c10d"}
    elif kind == "PyTorchJob":
        policy = chance.choice(("ALWAYS", "ON_FAILURE", "NEVER"))
        custom["masterReplicas"] = {"replicas": 1, "restartPolicy": f"RESTART_POLICY_{policy}"}
    run = a_run(execution=f"h{number}", namespace=NAMESPACE, output_prefix=f"s3://bucket/{number}")
    planned = plan(a_template(custom), run, read({"kfpytorch": {"dialect": kind.lower()}}))
    # A copy without shared parts.
    job, required = json.loads(json.dumps([planned.job, planned.prerequisites]))
    if kind == "PyTorchJob":
        templates = [each["template"] for each in job["spec"]["pytorchReplicaSpecs"].values()]
    else:
        (replicated,) = required[0]["spec"]["template"]["spec"]["replicatedJobs"]
        templates = [replicated["template"]["spec"]["template"]]
    for template in templates:
        template["metadata"].setdefault("annotations", {})[BY_HAND] = "true"
    return {**merge_patch(job, build_suspension(kind, value=chance.random() < 0.2))}, required


def build_suspension(kind, *, value):
    return {"spec": {"runPolicy": {"suspend": value}} if kind == "PyTorchJob" else {"suspend": value}}


def build_status(step, pod):
    ended = {"startedAt": AT, "finishedAt": AT}
    phase, state = {
        "run": ("Running", {"running": {"startedAt": AT}}),
        "succeed": ("Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed", **ended}}),
        "fail": ("Failed", {"terminated": {"exitCode": 3, "reason": "Error", **ended}}),
        "disrupt": ("Failed", {"terminated": {"exitCode": 143, "reason": "Error", **ended}}),
    }[step]
    kept = [each for each in pod["status"].get("conditions", []) if each["type"] != "Ready"]
    ready = {"type": "Ready", "status": str(step == "run"), "lastTransitionTime": AT}
    name = pod["spec"]["containers"][0]["name"]
    container = {"name": name, "image": "i", "imageID": "", "ready": step == "run", "restartCount": 0}
    return {
        "phase": phase,
        "conditions": [*kept, ready],
        "containerStatuses": [{**container, "state": state}],
    }


def describe(job, found, events):
    """Return the state in which both clusters must agree."""
    there = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
    status = (job or {}).get("status", {})
    # The simulated nodes of the real cluster have no kubelet, which writes the events about pods.
    events = [each for each in events if each["involvedObject"]["kind"] != "Pod"]
    observed = read_observed({"job": job, "pods": there, "events": events, "outputs": True})
    verdict = judge(observed, JudgingContext(), datetime.now(timezone.utc))
    return {
        "exists": job is not None,
        "pods": sorted(map(describe_pod, there), key=lambda pod: str(pod["name"])),
        # The training-operator keeps the condition Created in its cache only.
        "conditions": [
            {key: value for key, value in each.items() if value and not key.startswith("last")}
            for each in status.get("conditions", [])
            if each["type"] != "Created"
        ],
        "jobsStatus": status.get("jobsStatus"),
        "replicas": {
            role: [counts.get(name, 0) for name in ("active", "succeeded", "failed")]
            for role, counts in status.get("replicaStatuses", {}).items()
        },
        "verdict": (verdict.phase.value, verdict.reason, verdict.message) if job else None,
    }


def describe_pod(pod):
    metadata, spec = pod["metadata"], pod["spec"]
    # Each cluster has its own uids, ports and nodes.
    labels, annotations = (
        {
            key: value
            for key, value in metadata.get(kind, {}).items()
            if not key.endswith("uid") and key != PORT and not key.startswith("kwok")
        }
        for kind in ("labels", "annotations")
    )
    return {
        # Pods of a Job have a random suffix.
        "name": re.sub("-[a-z0-9]{5}$", "", metadata["name"]),
        "phase": pod["status"]["phase"],
        "labels": labels,
        "annotations": annotations,
        "tracked": metadata.get("finalizers", []),
        **{key: spec.get(key) for key in ("hostname", "subdomain", "restartPolicy")},
        "env": [[_describe_variable(each) for each in box.get("env", [])] for box in spec["containers"]],
        "resources": [box.get("resources") for box in spec["containers"]],
    }


def _describe_variable(variable):
    field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    return variable["name"], variable.get("value", "") or field


def get_replica(pod):
    labels, names = pod["metadata"]["labels"], find_pod_operator(pod).dialect.labels
    return f"{labels[names.role]}-{labels[names.index]}"


def select_pod(found, replica):
    (pod,) = [
        pod
        for pod in found
        if get_replica(pod) == replica
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"]["phase"] in ("Pending", "Running")
    ]
    return pod


class IdleKubelet:
    """A kubelet whose pods end when a test writes their status."""

    def __init__(self, report):
        self._report = report

    async def start_pod(self, _): ...

    async def remove_pod(self, _): ...

    async def terminate_pod(self, uid, _):
        self._report.on_terminated(uid)

    async def close(self): ...


class EmbeddedSide:
    """The controllers of the embedded cluster, without its scheduler and kubelet."""

    def __init__(self, folder):
        # Objects have times in whole seconds, so each step takes some.
        self._now = datetime.now(timezone.utc) - 2 * STEPS * SECONDS
        self.store = Store.open(folder, self.get_now)
        recorder = EventRecorder(self.store)
        self.pods = PodController(self.store, recorder, IdleKubelet)
        self.jobs = JobReconciler(self.store, self.pods, recorder)
        self.store.watch(self.jobs.on_change)
        self.jobs.start()
        self.key: Key
        self.node = self.store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})

    def get_now(self):
        return self._now

    async def begin(self, job, required):
        stored = [self.store.create(admit_object(each, self.store.get)) for each in required]
        made = self.store.create(admit_object(job, self.store.get))
        self.key = get_key(made)
        for each in stored:
            self.store.update(merge_patch(each, {"metadata": {"ownerReferences": [own(made)]}}))
        await self.settle()

    @property
    def found(self):
        return self.store.list_objects("Pod")

    def list_steps(self):
        is_suspended = OPERATORS[self.key.kind].dialect.is_suspended(self.store.get(self.key))
        steps = [("resume" if is_suspended else "suspend", ""), ("delete", "")]
        for pod in self.found:
            replica = get_replica(pod)
            ends = [(name, replica) for name in ("succeed", "fail", "disrupt")]
            steps += {"Pending": [("run", replica)] * 6, "Running": ends * 2}.get(pod["status"]["phase"], [])
        return steps

    async def play(self, step):
        self._now += SECONDS
        name, replica = step
        job = self.store.get(self.key)
        if name == "delete":
            self.store.remove(get_uid(job))
        elif name in ("suspend", "resume"):
            self.store.update(merge_patch(job, build_suspension(self.key.kind, value=name == "suspend")))
        else:
            pod = select_pod(self.found, replica)
            if name == "disrupt":
                pod = self.store.update(mark_evicted(pod, self._now))  # type: ignore[assignment]
            self.pods.on_status(get_uid(pod), build_status(name, pod))
            if name == "disrupt" and self.key.kind == "TrainJob":
                there = self.store.get_by_uid(get_uid(pod))
                if there is not None:
                    self.pods.delete(there)
        await self.settle()
        return self.state

    @property
    def state(self):
        job = self.store.get(self.key)
        return describe(job, self.found, self.store.list_objects("Event"))  # type: ignore[arg-type]

    async def settle(self):
        """Bind all pods, and wait until nothing changes."""
        for _ in range(100):
            await asyncio.sleep(0)
            for pod in self.found:
                self.pods.apply_decision(Binding(uid=get_uid(pod), node="n"))

    async def close(self):
        self.jobs.close()
        await self.pods.close()
        self.store.close()


def own(job):
    return {
        **{key: job[key] for key in ("apiVersion", "kind")},
        **{key: job["metadata"][key] for key in ("name", "uid")},
        "controller": True,
    }


History = tuple[Manifest, Sequence[Manifest], list[tuple[Step, State]]]


async def choose_history(kind, number):
    """Return the objects of a history, and its steps with the embedded state after each."""
    chance = random.Random(f"{SEED}/{number}")
    job, required = build_manifests(kind, number, chance)
    with tempfile.TemporaryDirectory() as folder:
        side = EmbeddedSide(Path(folder))
        await side.begin(job, required)
        played = [(("create", ""), side.state)]
        for _ in range(STEPS):
            step = chance.choice(side.list_steps())
            played.append((step, await side.play(step)))
            if step[0] == "delete":
                break
        await side.close()
    return job, required, played


class RealSide:
    def __init__(self, plane, job):
        self.api = plane.admin
        self.kind, self.name = job["kind"], job["metadata"]["name"]
        self.path = f"{path_of(job)}/{self.name}"

    def begin(self, job, required):
        for each in required:
            self.api.create(each)
        # Trainer rejects the job until its cache contains the runtime.
        wait_until(lambda: self.api.request("POST", path_of(job), job).is_success)
        owner = own(self.api.get(self.path) or {})
        for each in required:
            path = f"{path_of(each)}/{each['metadata']['name']}"
            self.api.patch(path, {"metadata": {"ownerReferences": [owner]}})

    @property
    def found(self):
        label = OPERATORS[self.kind].dialect.labels.job_name
        return self.api.items(pods(NAMESPACE), labelSelector=f"{label}={self.name}")

    def play(self, step):
        # Objects have times in whole seconds, so begin in another second than the last change.
        time.sleep(1 - time.time() % 1)
        name, replica = step
        if name == "delete":
            self.api.delete(self.path)
        elif name in ("suspend", "resume"):
            self.api.patch(self.path, build_suspension(self.kind, value=name == "suspend"))
        elif name != "create":
            pod = select_pod(self.found, replica)
            status = build_status(name, pod)
            if name == "disrupt":
                status["conditions"].append(EVICTED)
            path = pods(NAMESPACE, pod["metadata"]["name"])
            self.api.patch(f"{path}/status", {"status": status})
            # The training-operator may not observe the failure of a pod that is deleted immediately.
            if name == "disrupt" and self.kind == "TrainJob":
                # kwok removes a deleted pod before the Job controller has counted it.
                wait_until(lambda: not is_tracked(self.api.get(path) or {}))
                self.api.delete(path)

    @property
    def state(self):
        events = self.api.items(f"/api/v1/namespaces/{NAMESPACE}/events")
        ours = [each for each in events if each["involvedObject"]["name"].startswith(self.name)]
        return describe(self.api.get(self.path), self.found, ours)


def compare(expected, found, path=""):
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted({*expected, *found}):
            yield from compare(expected.get(key), found.get(key), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from compare(one, other, f"{path}[{index}]")
    elif expected != found:
        yield f"{path}: embedded {expected}, real {found}"


def play(plane, kind, number):
    """Return the disagreement of a history; empty if there is none."""
    job, required, played = asyncio.run(choose_history(kind, number))
    side = RealSide(plane, job)
    side.begin(job, required)
    for at, (step, expected) in enumerate(played):
        side.play(step)
        try:
            wait_until(lambda expected=expected: side.state == expected)
        except AssertionError:
            steps = [each for each, _ in played[: at + 1]]
            return "\n  ".join([f"history {number}, {steps}:", *compare(expected, side.state)])
    return ""


@pytest.fixture(params=[*OPERATORS])
def kind(request):
    return str(request.param)


@pytest.fixture
def plane(request, kind):
    """The control plane with the operator of this kind of job."""
    name = "with_trainer" if kind == "TrainJob" else "with_operator"
    return request.getfixturevalue(name)


@pytest.mark.parametrize(
    "histories", [FEW, *(pytest.param(each, marks=pytest.mark.soak) for each in MANY)], ids=str
)
def test_embedded_operator_agrees_with_the_real_controllers(plane, kind, histories, capsys):
    with capsys.disabled():
        print(f" KFPYTORCH_SEED={SEED} ", end="", flush=True)
    plane.namespace(NAMESPACE)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [*filter(None, pool.map(lambda each: play(plane, kind, each), histories))]
    assert not wrong, "\n".join([f"seed {SEED}", *wrong])
