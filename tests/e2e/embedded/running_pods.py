"""A kubelet for tests, a recorder of its reports, and pods that run shell commands or Python code."""

import asyncio
import contextlib
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from backend_plugin.embedded.kubelet import Kubelet
from backend_plugin.embedded.options import EmbeddedOptions, RestartBackoff
from backend_plugin.embedded.shim.layout import MARK
from backend_plugin.shell.cluster import LogRequest

Manifest = dict[str, Any]
Found = TypeVar("Found")

PATIENCE = 20.0  # Seconds until a wait fails. Most waits take tenths of a second.
QUICK = RestartBackoff(first=0.05, most=0.1)
NUMBERS = itertools.count()


async def wait_until(find: Callable[[], Found], state: object) -> Found:
    """Wait for the first true result and return it. The error contains `state`."""
    give_up = time.monotonic() + PATIENCE
    while not (found := find()):
        assert time.monotonic() < give_up, f"still {state}"
        await asyncio.sleep(0.01)
    return found


class ReportedStatuses:
    def __init__(self) -> None:
        self.statuses: dict[str, list[Manifest]] = {}
        self.ended: list[str] = []

    def on_status(self, uid: str, status: Manifest) -> None:
        self.statuses.setdefault(uid, []).append(status)

    def on_terminated(self, uid: str) -> None:
        self.ended.append(uid)

    async def wait_until_ended(self, uid: str) -> None:
        await wait_until(lambda: uid in self.ended, vars(self))


class RunningNode:
    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.reported = ReportedStatuses()
        self.kubelet = Kubelet(root, EmbeddedOptions(**{"back_off": QUICK, **options}), self.reported)

    async def run(self, *pods: Manifest) -> None:
        for each in pods:
            await self.kubelet.start_pod(each)

    async def ran(self, *pods: Manifest) -> Manifest:
        """Run these pods, and return the final status of the last one."""
        await self.run(*pods)
        return await self.phase(pods[-1], "Succeeded", "Failed")

    async def running(self, *pods: Manifest) -> None:
        await self.run(*pods)
        await self.phase(pods[-1], "Running")

    async def restarted(self, pod: Manifest, count: int = 1) -> None:
        """Wait until the first container has been restarted this number of times."""
        await self.when(pod, lambda status: status["containerStatuses"][0]["restartCount"] >= count)

    async def phase(self, pod: Manifest, *phases: str) -> Manifest:
        return await self.when(pod, lambda status: status["phase"] in phases)

    async def when(self, pod: Manifest, what: Callable[[Manifest], object]) -> Manifest:
        def last() -> Manifest | None:
            statuses = self.reported.statuses.get(uid(pod), [])
            return statuses[-1] if statuses and what(statuses[-1]) else None

        return await wait_until(last, self.reported.statuses)

    async def terminated(self, pod: Manifest, grace: float) -> Manifest:
        await self.kubelet.terminate_pod(uid(pod), grace)
        await self.reported.wait_until_ended(uid(pod))
        return self.reported.statuses[uid(pod)][-1]

    async def lines(self, pod: Manifest, container: str = "main", **request: Any) -> list[str]:
        wanted = LogRequest(container=container, **request)
        return [line.text async for line in self.kubelet.read_log(uid(pod), wanted)]


@contextlib.asynccontextmanager
async def node(root: Path, **options: Any) -> AsyncIterator[RunningNode]:
    """Yield a node, and check at the end that no process of a pod remains."""
    found = RunningNode(root / "pods", **options)
    try:
        yield found
    finally:
        await found.kubelet.close()
    assert marked(found.root) == []


def marked(root: Path) -> list[int]:
    """Return the processes of pods below a directory."""
    uids = [path.name for path in root.iterdir()] if root.exists() else []
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if each.environ().get(MARK, "").partition("/")[0] in uids:
                found.append(each.pid)
    return found


def uid(pod: Manifest) -> str:
    return pod["metadata"]["uid"]


def shell(script: str, name: str = "main", **fields: Any) -> Manifest:
    """Build a container that runs a shell script. Each `$` is escaped."""
    return {"name": name, "image": "i", "command": ["sh", "-c", script.replace("$", "$$")], **fields}


def python(script: str, name: str = "main", **fields: Any) -> Manifest:
    return {"name": name, "image": "i", "command": [sys.executable, "-u", "-c", script], **fields}


def pod(*containers: Manifest, policy: str = "Never", **spec: Any) -> Manifest:
    number = next(NUMBERS)
    metadata = {"name": f"p-{number}", "namespace": "a", "uid": f"{os.getpid()}-{number}"}
    defaults = {"nodeName": "node-1", "restartPolicy": policy, "terminationGracePeriodSeconds": 30}
    return {"metadata": metadata, "spec": {**defaults, "containers": list(containers), **spec}}


def replica(role: str, *containers: Manifest, job: str = "j", **spec: Any) -> Manifest:
    """Build the first pod of a replica role of a job."""
    found = pod(*containers, **spec)
    labels = {"job-name": job, "replica-type": role, "replica-index": "0"}
    found["metadata"]["name"] = f"{job}-{role}-0"
    found["metadata"]["labels"] = {f"training.kubeflow.org/{key}": value for key, value in labels.items()}
    return found


def get_terminated(status: Manifest, number: int = 0) -> Manifest:
    return status["containerStatuses"][number]["state"]["terminated"]


def waits(status: Manifest, number: int = 0) -> tuple[str, str]:
    waiting = status["containerStatuses"][number]["state"].get("waiting", {})
    return waiting.get("reason", ""), waiting.get("message", "")


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def shim_of(pid: int) -> int:
    """Return the pid of the shim that started the first process of a container."""
    return psutil.Process(pid).ppid()
