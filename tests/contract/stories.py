"""Helpers to write a scenario around the service."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripted_cluster import ago
from serving import NAMESPACE, RING, Served, serving, wait_until

from backend_plugin.core import job_ref

Story = Callable[[Served], Awaitable[None]]
LABEL = "training.kubeflow.org/"


@asynccontextmanager
async def ready_server(store: Path, **more: Any) -> AsyncIterator[Served]:
    """Start a server, and wait until its caches are complete."""
    async with serving(store, **more) as served:
        await wait_until(served.cache.ready.is_set)
        yield served


def run_story(story: Story, store: Path, **more: Any) -> None:
    async def run() -> None:
        async with ready_server(store, **more) as served:
            await story(served)

    asyncio.run(run())


def condition(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "status": "True", "lastTransitionTime": ago(0), **fields}


def status(*kinds: str) -> dict[str, Any]:
    conditions = [condition(kind, reason=f"PyTorchJob{kind}") for kind in ("Created", *kinds)]
    return {"startTime": ago(0), "conditions": conditions}


def pod(job: str, replica: str, phase: str, **fields: Any) -> dict[str, Any]:
    role, _, index = replica.partition("-")
    labels = {LABEL + "job-name": job, LABEL + "replica-type": role, LABEL + "replica-index": index}
    return {
        "kind": "Pod",
        "metadata": {"name": f"{job}-{replica}", "namespace": NAMESPACE, "labels": labels},
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase, **fields},
    }


def terminated(code: int) -> list[dict[str, Any]]:
    state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": ago(0)}}
    return [{"name": "pytorch", "state": state}]


def name_of(meta: bytes) -> str:
    return job_ref.decode(meta).name


async def is_phase(served: Served, meta: bytes, phase: str) -> bool:
    return await served.phase(meta) == phase


def forged(meta: bytes, **fields: str) -> bytes:
    """Return a reference to something else with a valid signature, as from a server with another defect."""
    return job_ref.encode(replace(job_ref.decode(meta), **fields), RING.keys)  # type: ignore[arg-type]
