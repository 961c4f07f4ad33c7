"""A generic client discovers the services through reflection and calls them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from e2e.propeller_flow.conftest import Road
from e2e.propeller_flow.server_process import TOKEN

SCRIPT = Path(__file__).parents[1] / "scripts" / "foreign.py"


def test_generic_client_calls_each_service_through_reflection(road: Road) -> None:
    command = [sys.executable, "-I", str(SCRIPT), road.served.endpoint, TOKEN]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    results: dict[str, Any] = json.loads(ran.stdout)

    assert results["loaded"] == []
    assert results["services"] == [
        "flyteidl.service.AgentMetadataService",
        "flyteidl.service.AsyncAgentService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "kfpytorch_idl.v1.JobService",
        "kfpytorch_idl.v1.NodeService",
        "kfpytorch_idl.v1.RuntimeService",
    ]
    assert results["health"] == {"status": "SERVING"}
    assert [agent["supportedTaskTypes"] for agent in results["agents"]] == [["pytorch"]]
    assert results["agents"][0]["supportedTaskCategories"][-1] == {"name": "pytorch", "version": 1}
    assert results["task"]["phase"] == "FAILED"
    assert "task_execution_metadata.namespace" in results["task"]["message"]
    assert len(results["nodes"]["nodes"]) == 2
