"""Generated tasks: we refuse each of them, or the real webhooks and controllers accept it.

`KFPYTORCH_SEED=random` selects other tasks.
"""

import contextlib
import uuid
from random import Random

import pytest
from builders import a_run
from flyteidl.core.tasks_pb2 import TaskTemplate
from generated_tasks import cases
from google.protobuf.json_format import ParseDict
from rig.api import path_of
from rig.process import wait_until
from rig.seed import SEED
from trainjob_requests import NAMESPACE as STORED
from trainjob_requests import build_objects

from backend_plugin.core import settings as platform
from backend_plugin.core.dialects.trainjob import DIALECT
from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.pipeline import plan
from backend_plugin.embedded.operators.table import OPERATORS

PLANE = "with_trainer"
NAMESPACE = "generated"
SETTINGS = platform.read({"kfpytorch": {"dialect": "trainjob"}})
# Parts of a container with which Trainer or the Job controller could disagree.
ODD = (
    *({"env": [{"name": name, "value": "1"}]} for name in ("RANK", "PET_NNODES", "MASTER_ADDR", "1=2", "")),
    *({"name": name} for name in ("node", "", "Not_A_Name")),
    *({"ports": [{"containerPort": port}]} for port in (0, 23456, 29500)),
    *({"ports": [{"containerPort": 80, "name": name}]} for name in ("trainjob-port", "TOO-LONG-FOR-A-PORT")),
    {"args": ["x" * 200_000]},
    {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
    {"resources": {"limits": {"memory": "-1"}}},
)


def build_template(task, chance):
    """Return the template of a generated task, whose pod has an odd part in one of ten cases."""
    template = task["template"]
    spec = template.get("k8sPod", {}).get("podSpec", {"containers": []})
    # Parts that a Job may not have, and that `plan` does not check.
    spec.pop("ephemeralContainers", None)
    for container in (*spec["containers"], *spec.get("initContainers", [])):
        container.get("resources", {}).pop("claims", None)
    for container in spec.get("initContainers", []):
        for name in ("lifecycle", "livenessProbe"):
            container.pop(name, None)
    if spec["containers"] and chance.random() < 0.1:
        chance.choice(spec["containers"]).update(chance.choice(ODD))
    return ParseDict(template, TaskTemplate())


def check_plan(plane, planned):
    """Create the runtime and the job, and wait for the Job whose pods are the nodes."""
    (runtime,) = planned.prerequisites
    job = planned.job
    made = create(plane, runtime)
    assert made[0] == 201, made[1]

    def is_accepted():
        code, text = create(plane, job)
        assert code in (201, 409) or DIALECT.is_premature(text), text
        return code in (201, 409)

    wait_until(is_accepted)
    name = job["metadata"]["name"]
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}-node-0"
    wait_until(lambda: plane.admin.get(path) is not None, 60, lambda: find_events(plane, name))
    plane.admin.delete(f"{path_of(job)}/{name}")
    plane.admin.delete(f"{path_of(runtime)}/{name}")


def create(plane, manifest):
    answer = plane.admin.request("POST", path_of(manifest), manifest, params={"fieldValidation": "Strict"})
    return answer.status_code, answer.text


def find_events(plane, name):
    found = plane.admin.items(f"/api/v1/namespaces/{NAMESPACE}/events")
    return "\n".join(each["message"] for each in found if each["involvedObject"]["name"].startswith(name))


@pytest.mark.parametrize("examples", [60, pytest.param(500, marks=pytest.mark.soak)])
@pytest.mark.timeout(1800)
def test_accepted_task_is_accepted_by_webhooks_and_controllers(plane, examples):
    plane.namespace(NAMESPACE)
    accepted = 0
    chance = Random(SEED)
    for task in cases(examples, SEED):
        template = build_template(task, chance)
        with contextlib.suppress(InvalidTask):
            run = a_run(namespace=NAMESPACE, output_prefix=f"s3://b/{uuid.uuid4()}")
            planned = plan(template, run, SETTINGS)
            accepted += 1
            check_plan(plane, planned)
    assert accepted > examples / 10


def test_objects_are_stored_as_in_the_embedded_cluster(plane):
    operator = OPERATORS["TrainJob"]
    assert operator.admit_prerequisite is not None
    plane.namespace(STORED)
    api, (job, runtime) = plane.admin, build_objects()
    assert api.create(runtime)["spec"] == operator.admit_prerequisite(runtime)["spec"]
    # Trainer rejects the job until its cache contains the runtime.
    wait_until(lambda: api.request("POST", path_of(job), job).is_success)
    stored = api.get_existing(f"{path_of(job)}/{job['metadata']['name']}")
    assert stored["spec"] == operator.admit(job, runtime)["spec"]
