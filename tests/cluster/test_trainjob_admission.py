"""Generated tasks: we refuse each of them, or the real webhooks and controllers accept it."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from flyteidl.core.tasks_pb2 import TaskTemplate
from google.protobuf.json_format import ParseDict
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rig.api import path_of
from rig.control_plane import ControlPlane
from rig.process import wait_until

from backend_plugin.core import settings as platform
from backend_plugin.core.dialects.trainjob import DIALECT
from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.job import Attempt
from backend_plugin.core.pipeline import plan
from backend_plugin.core.plan import Plan

OPERATOR = "trainer"
NAMESPACE = "generated"
SETTINGS = platform.read({"kfpytorch": {"dialect": "trainjob"}})
RUN = Attempt(
    output_prefix="", project="p", domain="d", execution="e", node_id="n0", attempt=0, namespace=NAMESPACE,
    task_project="p", task_domain="d", task_name="t", task_version="v",
)  # fmt: skip
# Mostly valid values, because a task with many invalid ones is always refused.
NAMES = st.sampled_from([*["main", "logs", "proxy"] * 8, "node", "", "Not_A_Name"])
ENVIRONMENTS = st.sampled_from([*["A", "NCCL_DEBUG"] * 8, "RANK", "PET_NNODES", "MASTER_ADDR", "1=2", ""])
ENTRIES = st.fixed_dictionaries({"name": ENVIRONMENTS, "value": st.text(max_size=3)})
CONTAINERS = st.fixed_dictionaries(
    {"name": NAMES, "image": st.sampled_from([*["image:1"] * 20, ""])},
    optional={
        "args": st.lists(st.sampled_from(["train", "--epochs=3", "x" * 200_000]), max_size=2),
        "env": st.lists(ENTRIES, max_size=2),
        "ports": st.lists(
            st.fixed_dictionaries(
                {"containerPort": st.sampled_from([8080, 29500, 23456, 0])},
                optional={
                    "name": st.sampled_from(
                        ["web", "pytorchjob-port", "trainjob-port", "TOO-LONG-FOR-A-PORT"]
                    )
                },
            ),
            max_size=2,
        ),
        "volumeMounts": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["data", "absent"]),
                    "mountPath": st.sampled_from(["/data", "/dev/shm", "/data"]),
                }
            ),
            max_size=2,
        ),
        "resources": st.sampled_from(
            [
                {"limits": {"cpu": "1", "memory": "1Gi"}},
                {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
                {"limits": {"nvidia.com/gpu": "1"}},
                {"requests": {"nvidia.com/gpu": "1"}},
                {"limits": {"memory": "-1"}},
            ]
        ),
    },
)
SPECS = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINERS, min_size=1, max_size=2)},
    optional={
        "initContainers": st.lists(CONTAINERS, max_size=1),
        "volumes": st.lists(
            st.fixed_dictionaries({"name": st.just("data"), "emptyDir": st.just({})}), max_size=2
        ),
        "tolerations": st.lists(
            st.sampled_from(
                [{"key": "gpu", "operator": "Exists"}, {"key": "a", "operator": "Exists", "value": "b"}]
            ),
            max_size=2,
        ),
        "nodeSelector": st.dictionaries(
            st.sampled_from(["a/b", "zone", "-"]), st.sampled_from(["x", "é"]), max_size=1
        ),
        "priorityClassName": st.sampled_from(["system-node-critical", "Not Valid"]),
        "serviceAccountName": st.sampled_from(["default", "Not Valid"]),
        "imagePullSecrets": st.just([{"name": "a"}, {"name": "a"}]),
        "restartPolicy": st.sampled_from(["Always", "OnFailure"]),
        "activeDeadlineSeconds": st.sampled_from([60, 0]),
        "hostname": st.just("mine"),
        "subdomain": st.just("ours"),
    },
)
REPLICAS = st.integers(0, 3)
RETRIES = st.fixed_dictionaries({}, optional={"backoffLimit": st.integers(1, 3)})


def build_replicas(workers: int, policy: Mapping[str, int]) -> Mapping[str, Any]:
    replicas = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": workers}}
    return {**replicas, "runPolicy": policy}


def build_elastic(low: int, more: int, processes: int) -> Mapping[str, Any]:
    elastic = {"minReplicas": low, "maxReplicas": low + more, "nprocPerNode": processes}
    return {"workerReplicas": {"replicas": low + more}, "elasticConfig": elastic}


CUSTOMS = st.builds(build_replicas, REPLICAS, RETRIES) | st.builds(
    build_elastic, st.integers(1, 2), st.integers(0, 2), st.integers(1, 2)
)


def build_template(spec: Mapping[str, Any], custom: Mapping[str, Any]) -> TaskTemplate:
    named = {"primary_container_name": spec["containers"][0]["name"]}
    fields = {"type": "pytorch", "taskTypeVersion": 1, "config": named, "custom": custom}
    return ParseDict({**fields, "k8sPod": {"podSpec": spec}}, TaskTemplate())


def check_tasks(plane: ControlPlane, examples: int) -> int:
    """Create the jobs of generated tasks, and return the number of those that are not refused."""
    accepted = 0

    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        # A smaller example is not worth its time: each waits for the controllers.
        phases=[Phase.generate],
    )
    @given(SPECS, CUSTOMS)
    def check(spec: Mapping[str, Any], custom: Mapping[str, Any]) -> None:
        nonlocal accepted
        run = replace(RUN, output_prefix=f"s3://b/{uuid.uuid4()}")
        try:
            planned = plan(build_template(spec, custom), run, SETTINGS)
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

    wait_until(is_accepted)
    name = job["metadata"]["name"]
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}-node-0"
    wait_until(lambda: plane.admin.get(path) is not None, 60, lambda: find_events(plane, name))
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
def test_accepted_task_is_accepted_by_webhooks_and_controllers(plane: ControlPlane, examples: int) -> None:
    plane.namespace(NAMESPACE)
    assert check_tasks(plane, examples) > examples / 10
