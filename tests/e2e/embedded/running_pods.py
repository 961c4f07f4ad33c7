"""A kubelet for tests, a recorder of its reports, and pods that run shell commands or Python code."""

import asyncio
import contextlib
import itertools
import os
import sys
import time
from typing import Any

import psutil

from backend_plugin.embedded.kubelet import Kubelet
from backend_plugin.embedded.options import EmbeddedOptions, RestartBackoff
from backend_plugin.embedded.shim.layout import MARK
from backend_plugin.shell.cluster import LogRequest

Manifest = dict[str, Any]

PATIENCE = 20.0  # Seconds until a wait fails. Most waits take tenths of a second.
QUICK = RestartBackoff(first=0.05, most=0.1)
NUMBERS = itertools.count()


async def wait_until(find, state):
    """Wait for the first true result and return it. The error contains `state`."""
    give_up = time.monotonic() + PATIENCE
    while not (found := find()):
        assert time.monotonic() < give_up, f"still {state}"
        await asyncio.sleep(0.01)
    return found


class ReportedStatuses:
    def __init__(self):
        self.statuses = {}
        self.ended = []

    def on_status(self, uid, status):
        self.statuses.setdefault(uid, []).append(status)

    def on_terminated(self, uid):
        self.ended.append(uid)

    async def wait_until_ended(self, uid):
        await wait_until(lambda: uid in self.ended, vars(self))


class RunningNode:
    def __init__(self, root, **options):
        self.root = root
        self.reported = ReportedStatuses()
        self.kubelet = Kubelet(root, EmbeddedOptions(**{"back_off": QUICK, **options}), self.reported)

    async def run(self, *pods):
        for each in pods:
            await self.kubelet.start_pod(each)

    async def ran(self, *pods):
        """Run these pods, and return the final status of the last one."""
        await self.run(*pods)
        return await self.phase(pods[-1], "Succeeded", "Failed")

    async def running(self, *pods):
        await self.run(*pods)
        await self.phase(pods[-1], "Running")

    async def restarted(self, pod, count=1):
        """Wait until the first container has been restarted this number of times."""
        await self.when(pod, lambda status: status["containerStatuses"][0]["restartCount"] >= count)

    async def phase(self, pod, *phases):
        return await self.when(pod, lambda status: status["phase"] in phases)

    async def when(self, pod, what):
        def last():
            statuses = self.reported.statuses.get(uid(pod), [])
            return statuses[-1] if statuses and what(statuses[-1]) else None

        return await wait_until(last, self.reported.statuses)

    async def terminated(self, pod, grace):
        await self.kubelet.terminate_pod(uid(pod), grace)
        await self.reported.wait_until_ended(uid(pod))
        return self.reported.statuses[uid(pod)][-1]

    async def lines(self, pod, container="main", **request):
        wanted = LogRequest(container=container, **request)
        return [line.text async for line in self.kubelet.read_log(uid(pod), wanted)]


@contextlib.asynccontextmanager
async def node(root, **options):
    """Yield a node, and check at the end that no process of a pod remains."""
    found = RunningNode(root / "pods", **options)
    try:
        yield found
    finally:
        await found.kubelet.close()
    assert marked(found.root) == []


def marked(root):
    """Return the processes of pods below a directory."""
    uids = [path.name for path in root.iterdir()] if root.exists() else []
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if each.environ().get(MARK, "").partition("/")[0] in uids:
                found.append(each.pid)
    return found


def uid(pod):
    return pod["metadata"]["uid"]


def shell(script, name="main", **fields):
    """Build a container that runs a shell script. Each `$` is escaped."""
    return {"name": name, "image": "i", "command": ["sh", "-c", script.replace("$", "$$")], **fields}


def python(script, name="main", **fields):
    return {"name": name, "image": "i", "command": [sys.executable, "-u", "-c", script], **fields}


def pod(*containers, policy="Never", **spec):
    number = next(NUMBERS)
    metadata = {"name": f"p-{number}", "namespace": "a", "uid": f"{os.getpid()}-{number}"}
    defaults = {"nodeName": "node-1", "restartPolicy": policy, "terminationGracePeriodSeconds": 30}
    return {"metadata": metadata, "spec": {**defaults, "containers": list(containers), **spec}}


def replica(role, *containers, job="j", **spec):
    """Build the first pod of a replica role of a job."""
    found = pod(*containers, **spec)
    labels = {"job-name": job, "replica-type": role, "replica-index": "0"}
    found["metadata"]["name"] = f"{job}-{role}-0"
    found["metadata"]["labels"] = {f"training.kubeflow.org/{key}": value for key, value in labels.items()}
    return found


def get_terminated(status, number=0):
    return status["containerStatuses"][number]["state"]["terminated"]


def waits(status, number=0):
    waiting = status["containerStatuses"][number]["state"].get("waiting", {})
    return waiting.get("reason", ""), waiting.get("message", "")


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def shim_of(pid):
    """Return the pid of the shim that started the first process of a container."""
    return psutil.Process(pid).ppid()
