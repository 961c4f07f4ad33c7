"""Generated tasks: we refuse each of them, or the real webhooks and controllers accept it."""

import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rig.api import path_of
from rig.control_plane import ControlPlane
from rig.process import wait_until
from rig.trainer import TrainerCluster

from backend_plugin.core import settings as platform
from backend_plugin.core.dialects.trainjob import DIALECT
from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.job import Plan
from backend_plugin.core.pipeline import plan

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))
import test_pods as generated

NAMESPACE = "generated"
SETTINGS = platform.read({"kfpytorch": {"dialect": "trainjob"}})
REPLICAS = st.integers(0, 3)
CUSTOMS = st.one_of(
    st.builds(
        lambda workers, policy: {
            "masterReplicas": {"replicas": 1},
            "workerReplicas": {"replicas": workers},
            "runPolicy": policy,
        },
        REPLICAS,
        st.fixed_dictionaries({}, optional={"backoffLimit": st.integers(1, 3)}),
    ),
    st.builds(
        lambda low, more, processes: {
            "workerReplicas": {"replicas": low + more},
            "elasticConfig": {"minReplicas": low, "maxReplicas": low + more, "nprocPerNode": processes},
        },
        st.integers(1, 2),
        st.integers(0, 2),
        st.integers(1, 2),
    ),
)


@pytest.fixture(scope="module")
def plane(trainer_cluster: TrainerCluster) -> ControlPlane:
    trainer_cluster.plane.namespace(NAMESPACE)
    return trainer_cluster.plane


def check_tasks(plane: ControlPlane, examples: int) -> int:
    """Create the jobs of generated tasks, and return the number of those that are not refused."""
    accepted = 0

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(generated.templates(), CUSTOMS)
    def check(template: Any, custom: Mapping[str, Any]) -> None:
        nonlocal accepted
        template.type, template.task_type_version = "pytorch", 1
        ParseDict(dict(custom), template.custom)
        run = replace(generated.RUN, namespace=NAMESPACE, output_prefix=f"s3://b/{uuid.uuid4()}", owner=None)
        try:
            planned = plan(template, run, SETTINGS)
        except InvalidTask:
            return
        accepted += 1
        check_plan(plane, planned)

    check()
    return accepted


def check_plan(plane: ControlPlane, planned: Plan) -> None:
    """Create the runtime and the job, and wait for the Job whose pods are the nodes."""
    (runtime,) = planned.prerequisites
    job: Any = planned.job
    made = create(plane, runtime)
    assert made[0] == 201, made[1]

    def is_accepted() -> bool:
        code, text = create(plane, job)
        assert code in (201, 409) or DIALECT.is_premature(text), text
        return code in (201, 409)

    wait_until(is_accepted, 10, lambda: "the runtime is not found")
    name = job["metadata"]["name"]
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}-node-0"
    wait_until(lambda: plane.admin.get(path) is not None, 20, lambda: find_events(plane, name))
    plane.admin.delete(f"{path_of(job)}/{name}")
    plane.admin.delete(f"{path_of(runtime)}/{name}")


def create(plane: ControlPlane, manifest: Any) -> tuple[int, str]:
    answer = plane.admin.request("POST", path_of(manifest), manifest, params={"fieldValidation": "Strict"})
    return answer.status_code, answer.text


def find_events(plane: ControlPlane, name: str) -> str:
    found = plane.admin.items(f"/api/v1/namespaces/{NAMESPACE}/events")
    return "\n".join(each["message"] for each in found if each["involvedObject"]["name"].startswith(name))


@pytest.mark.parametrize("examples", [60, pytest.param(500, marks=pytest.mark.soak)])
@pytest.mark.timeout(1800)
def test_a_task_that_we_accept_is_accepted_by_all(plane: ControlPlane, examples: int) -> None:
    assert check_tasks(plane, examples) > examples / 10
