"""Thousands of calls with random faults: no job is lost or duplicated, and no phase is wrong.

`KFPYTORCH_SEED=random` selects other calls and faults. Their order in time depends on the machine.
"""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random

import grpc
import pytest
from rig import kubelet
from rig.api import build_manifest, finish_job, jobs, pods
from rig.backend import Backend
from rig.caller import TRANSIENT, Caller, code_of
from rig.process import wait_for
from rig.proxy import How, Proxy, ProxyFault, status
from rig.seed import SEED

from backend_plugin.core import names

TASKS, OPERATIONS = 1_500, 5_000
AT_ONCE = 24
BAD, WORSE = 0.03, 0.95  # The share of API requests with a fault, in normal periods and in bad ones.
SPELL, BETWEEN = 6, 24  # The duration of a bad and a normal period, in seconds.
FAULTS = (
    status(429, "TooManyRequests", Retry_After="1"),
    status(500, "InternalError"),
    status(503, "ServiceUnavailable"),
    status(504, "Timeout"),
    ProxyFault(how=How.RESET_BEFORE),
    ProxyFault(how=How.RESET_AFTER),
    ProxyFault(how=How.CUT),
    ProxyFault(how=How.TRUNCATE),
)
CUT_EVERY = 200  # The number of operations between two aborts of all connections.
GONE = status(410, "Expired", "too old resource version")
"""These calls must succeed during faults: the server returns its last state, and retries deletions itself."""

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True)
class End:
    """One way in which a task ends, and the terminal phase that Flyte must get for it."""

    phase: str
    code: int | None = None  # The exit code of its only pod; None if it has no pod.
    reason: str = ""


ENDINGS = (
    End("SUCCEEDED"),
    End("SUCCEEDED", 0, "Completed"),
    End("RETRYABLE_FAILED"),
    End("RETRYABLE_FAILED", 137, "OOMKilled"),
    End("FAILED", 1, "Error"),
)


class LoadTasks:
    """Many concurrent tasks of Flyte, with the expected phase of each."""

    def __init__(self, plane, caller, namespace):
        self._plane = plane
        self._caller = caller
        self._namespace = namespace
        self._lock = threading.Lock()
        self.fresh = [caller.attempt(execution=f"f{number}") for number in range(TASKS)]
        self.living = []
        self.ended = {}  # The expected phase by execution, for jobs that have ended.
        self.played = Counter()
        self.wrong = []
        self.raised = Counter()

    def one(self, random):
        word = random.choices(("create", "get", "delete", "finish"), (20, 58, 12, 10))[0]
        with self._lock:
            word = word if self.living and self.fresh else "create" if self.fresh else "get"
            of = self.fresh if word == "create" else self.living
            attempt = of[random.randrange(len(of))]
            if word != "get":
                of.remove(attempt)
        try:
            getattr(self, f"_{word}")(attempt, random)
        except grpc.RpcError as error:
            self.raised[f"{word} {code_of(error)}"] += 1
            if word in ("get", "delete") or code_of(error) not in TRANSIENT:
                self.wrong.append(f"{word}: {error.code()} {error.details()}")
            if word != "delete":  # Retry it later. A deletion may have begun.
                with self._lock:
                    of.append(attempt)

    def _create(self, attempt, _):
        self._caller.create(attempt)
        self._live(attempt)

    def _get(self, attempt, _):
        self.is_known(attempt)

    def is_known(self, attempt):
        """True if GetTask returns the expected terminal phase. Record a wrong terminal phase."""
        response = self._caller.get(attempt)
        end = self.ended.get(attempt.execution)
        if response.phase in {"SUCCEEDED", "FAILED", "RETRYABLE_FAILED", "ABORTED"} and response.phase != end:
            self.wrong.append(f"{attempt.execution} has ended {end}: {response}")
        return response.phase == end

    def _delete(self, attempt, _):
        self._caller.delete(attempt)

    def _finish(self, attempt, random):
        """Let a job end as kubelet and operator do; later operations still query it."""
        if attempt.execution not in self.ended:
            self._play(attempt, random.choice(ENDINGS))
        self._live(attempt)

    def _live(self, attempt):
        with self._lock:
            self.living.append(attempt)

    def _play(self, attempt, end):
        self.ended[attempt.execution] = end.phase
        self.played[end] += 1
        if end.phase == "SUCCEEDED":
            self._caller.succeeded(attempt)
        if end.code is not None:
            # The pod exists and ends before its job ends, as in a cluster.
            made = self._plane.admin.create(_pod(self._namespace, attempt))
            kubelet.end(self._plane.admin, made, end.code, end.reason)
        kind = "Succeeded" if end.phase == "SUCCEEDED" else "Failed"
        finish_job(self._plane.admin, jobs(self._namespace, attempt.job), kind)


def _pod(namespace, attempt):
    labels = {
        **names.build_identity_labels(attempt.prefix),
        "training.kubeflow.org/job-name": attempt.job,
        "training.kubeflow.org/replica-type": "master",
        "training.kubeflow.org/replica-index": "0",
    }
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    fields = {
        "labels": labels,
        "ownerReferences": [{**kind, "name": attempt.job, "uid": attempt.uid, "controller": True}],
        "spec": {"nodeName": "nowhere", "containers": [{"name": "pytorch", "image": "image:1"}]},
    }
    return build_manifest("v1", "Pod", f"{attempt.job}-master-0", namespace, **fields)


def choose_fault(query, random):
    """Return a random fault of any kind, or None; in some periods, most requests fail."""
    is_spell = time.monotonic() % (SPELL + BETWEEN) < SPELL
    if random.random() >= (WORSE if is_spell else BAD):
        return None
    if "watch" in query:
        return random.choice((GONE, *FAULTS[:5]))
    return random.choice((GONE, *FAULTS) if "continue" in query else FAULTS)


def test_thousands_of_operations_with_faults_have_correct_results(bare, tmp_path, capsys):
    namespace = "faults-many"
    bare.namespace(namespace)
    with (
        Proxy(bare) as proxy,
        Backend(bare, tmp_path, server=proxy.url) as served,
        Caller(served.endpoint, tmp_path / "store", namespace, again=False) as caller,
    ):
        tasks = LoadTasks(bare, caller, namespace)
        proxy.choose = partial(choose_fault, random=Random(SEED))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            done = pool.map(lambda number: tasks.one(Random(f"{SEED}-{number}")), range(OPERATIONS))
            for number, _ in enumerate(done):
                if number % CUT_EVERY == 0:
                    proxy.cut()
        proxy.choose = lambda _: None
        with capsys.disabled():
            befell = Counter(each.name for each in proxy.befell)
            print(f" KFPYTORCH_SEED={SEED} {dict(befell)} {dict(tasks.raised)} ", end="", flush=True)
        assert not tasks.wrong, tasks.wrong[:10]
        settled(bare, namespace, tasks)
        assert tasks.played.keys() == {*ENDINGS}
        bare.admin.request("DELETE", jobs(namespace))
        bare.admin.request("DELETE", pods(namespace), params={"gracePeriodSeconds": "0"})
    assert not tasks.wrong, tasks.wrong[:10]


def settled(plane, namespace, tasks):
    """Wait until living tasks have their jobs, deleted ones have none, and all ends are returned."""
    expected = {attempt.job: attempt.uid for attempt in tasks.living}
    # After a failed create, the job may or may not exist.
    unsure = {attempt.execution for attempt in tasks.fresh}

    def list_uids():
        found = plane.admin.items(jobs(namespace))
        return {
            each["metadata"]["name"]: each["metadata"]["uid"]
            for each in found
            if each["metadata"]["labels"]["execution-id"] not in unsure
        }

    wait_for(lambda: list_uids().items() ^ expected.items(), lambda differing: not differing, 90)
    ended = [each for each in tasks.living if each.execution in tasks.ended]
    wait_for(lambda: [each.job for each in ended if not tasks.is_known(each)], lambda waiting: not waiting)
