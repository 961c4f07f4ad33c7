"""Plans, judges and runs a ToyJob, and prints the results as JSON. Its argument is an empty directory."""

import asyncio
import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from builders import a_run, a_template
from serving import NAMESPACE, Served, is_phase, serving, wait_until

import backend_plugin
from backend_plugin.core.cleanup import build_cancellation, plan_cleanup
from backend_plugin.core.dialects.table import read_job
from backend_plugin.core.judging.context import JudgingContext
from backend_plugin.core.observed import Observed
from backend_plugin.core.pipeline import judge, plan
from backend_plugin.core.settings import read
from backend_plugin.embedded.cluster import EmbeddedCluster
from backend_plugin.embedded.options import EmbeddedOptions
from backend_plugin.shell.cluster import LogRequest, ObjectName

ROLES = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 1}}
AT = "2026-01-01T00:00:00Z"
NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


def plan_and_judge() -> dict[str, Any]:
    manifest: Any = plan(a_template(ROLES), a_run(), read({})).job
    states = {}
    for state in ("Playing", "Done", "Broken"):
        status = {"began": AT, "history": [{"state": state, "at": AT}], "over": AT}
        states[state] = Observed(job=read_job({**manifest, "status": status}), outputs=True)
    cleanup: Any = plan_cleanup(states["Playing"], build_cancellation(""), NOW)
    return {
        "kind": [manifest["apiVersion"], manifest["kind"]],
        "containers": [each["pod"]["spec"]["containers"][0]["name"] for each in manifest["spec"]["teams"]],
        "verdicts": {state: judge(each, JudgingContext(), NOW).phase.value for state, each in states.items()},
        "cancelled": cleanup.patch["spec"],
    }


async def run_jobs(folder: Path) -> dict[str, Any]:
    cluster = await EmbeddedCluster.open(folder / "state", EmbeddedOptions())
    async with serving(folder / "store", cluster) as served:
        served.leave("outputs.pb")
        await run_job(served, "f1", "echo $TEAM $LEADER", "SUCCEEDED")
        (entry,) = served.cache
        lines = {}
        for pod in entry.pods:
            name = ObjectName(namespace=NAMESPACE, name=pod.name)
            request = LogRequest(container=pod.trainer)
            lines[pod.replica] = [line.text async for line in cluster.read_log(name, request)]
        broken = await run_job(served, "f2", "exit 3", "FAILED")
        message = (await served.get(broken)).message
    await cluster.close()
    return {"lines": lines, "message": message.partition("\n")[0]}


async def run_job(served: Served, execution: str, command: str, phase: str) -> bytes:
    container = {"image": "i", "command": ["/bin/sh", "-c", command]}
    reference = await served.create(execution=execution, container=container)
    await wait_until(lambda: is_phase(served, reference, phase))
    return reference


found = {"package": str(Path(backend_plugin.__file__).parent), **plan_and_judge()}
print(json.dumps({**found, **asyncio.run(run_jobs(Path(sys.argv[1])))}))
