"""Known behaviour of Flyte's Go plugin, as a check of the program that wraps the plugin."""

import base64
import copy
from pathlib import Path
from typing import Any

import pytest
from dice import Json
from peers import query_peer

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1800)]

ROLES = "spec.pytorchReplicaSpecs"
POD = f"{ROLES}.Worker.template.spec"
GPU = "nvidia.com/gpu"
TASK: Json = {
    "id": "",
    "template": {
        "id": {"resourceType": "TASK", "project": "p", "domain": "d", "name": "mod.train", "version": "v1"},
        "type": "pytorch",
        "taskTypeVersion": 1,
        "container": {"image": "trainer:v1", "args": ["run"]},
        "custom": {"workerReplicas": {"replicas": 2.0}, "masterReplicas": {"replicas": 1.0}},
    },
    "metadata": {
        "taskExecutionId": {
            "taskId": {"project": "p", "domain": "d", "name": "mod.train", "version": "v1"},
            "nodeExecutionId": {"nodeId": "n0", "executionId": {"project": "p", "domain": "d", "name": "f1"}},
        },
        "namespace": "p-d",
        "labels": {"workflow-name": "wf"},
    },
    "output_prefix": "s3://b/metadata/f1/n0/data/0",
    "settings": {},
    "pod_templates": [],
}
SIDECAR: Json = {"name": "logs", "image": "a:1", "resources": {"requests": {"cpu": "1"}}}
PRIMARY: Json = {"name": "main", "image": "a:1"}
WITH_SIDECAR: Json = {
    "template.container": None,
    "template.k8sPod": {"podSpec": {"containers": [SIDECAR, PRIMARY]}},
    "template.config": {"primary_container_name": "main"},
}
WORKER = "template.custom.workerReplicas"
REQUESTS = f"{WORKER}.resources.requests"
# Changes to TASK, the path of the result, and its value. A text that starts with "!" is part of an error.
BEHAVIOUR: dict[str, tuple[Json, str, Any]] = {
    "name": ({}, "metadata.name", "f1-n0-0"),
    "owner": ({}, "metadata.ownerReferences.0.kind", "flyteworkflow"),
    "no cpu is zero cpu": ({}, f"{POD}.containers.0.resources.limits.cpu", "0"),
    "defaults apply to an object without the key only": (
        {"settings.default-cpus": "2"},
        f"{POD}.containers.0.resources.limits.cpu",
        "0",
    ),
    "1: a sidecar's limit is below its request": (
        WITH_SIDECAR,
        f"{POD}.containers.0.resources",
        {"requests": {"cpu": "1", "memory": "0"}, "limits": {"cpu": "0", "memory": "0"}},
    ),
    "4: a role's GPU brings the platform's cpu": (
        {
            REQUESTS: [{"name": "GPU", "value": "1"}],
            "settings.kfpytorch": {"task-resources": {"defaults": {"cpu": "2", "memory": "200Mi"}}},
            "template.container.resources.requests": [{"name": "CPU", "value": "4"}],
        },
        f"{POD}.containers.0.resources.limits",
        {"cpu": "2", "memory": "200Mi", GPU: "1"},
    ),
    "5: GPUs are clamped": (
        {
            REQUESTS: [{"name": "GPU", "value": "8"}],
            "settings.kfpytorch": {"task-resources": {"limits": {GPU: "1"}}},
        },
        f"{POD}.containers.0.resources.limits.{GPU}",
        "1",
    ),
    "8: an empty quantity": ({REQUESTS: [{"name": "CPU", "value": ""}]}, "", "!quantity"),
    "9: negative workers": ({WORKER: {"replicas": -1.0}}, ROLES, ["Master"]),
    "10: elastic without nodes": (
        {WORKER: {"replicas": 0.0}, "template.custom.elasticConfig": {}},
        ROLES,
        [],
    ),
    "11: restart policy 7": ({f"{WORKER}.restartPolicy": 7.0}, f"{ROLES}.Worker.restartPolicy", None),
    "11: workers as text": ({WORKER: {"replicas": "3"}}, f"{ROLES}.Worker.replicas", 3),
    "11: half a worker": ({WORKER: {"replicas": 2.5}}, "", "!invalid TaskSpecification"),
    "13: no run policy": ({}, "spec.runPolicy", {}),
    "14: the worker name lands on the first container": (
        WITH_SIDECAR,
        f"{POD}.containers.0.env.-1.valueFrom.fieldRef.fieldPath",
        "metadata.name",
    ),
    "18: affinity": ({}, f"{POD}.affinity", {}),
    "25: a PodTemplate must exist": (
        {"template.metadata.podTemplateName": "gone"},
        "",
        "!PodTemplate 'gone' does not exist",
    ),
    "28: underscores go": (
        {"metadata.taskExecutionId.nodeExecutionId.nodeId": "UPPER_case"},
        "metadata.name",
        "f1-uppercase-0",
    ),
    "settings are strict": ({"settings.no-such-knob": 1}, "", "!no-such-knob"),
    "settings are lower-cased": (
        {"settings.default-labels": {"Team": "x"}},
        "metadata.labels",
        {"team": "x", "workflow-name": "wf"},
    ),
}


@pytest.fixture(scope="module")
def built(go_plugin: Path) -> dict[str, Json]:
    lines = [with_values(name, values) for name, (values, _, _) in BEHAVIOUR.items()]
    return {answer["id"]: answer for answer in query_peer([go_plugin], lines)}


def with_values(name: str, values: Json) -> Json:
    line: Any = copy.deepcopy(TASK)
    line["id"] = name
    for path, value in values.items():
        *folders, last = path.split(".")
        place = line
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return line


def looked_up(value: Any, path: str) -> Any:
    for key in path.replace(GPU, "GPU").split("."):
        value = value[int(key)] if isinstance(value, list) else value.get(key.replace("GPU", GPU))
    return sorted(value) if path == ROLES else value


@pytest.mark.parametrize("name", BEHAVIOUR)
def test_go_plugin_builds_the_expected_fields(name: str, built: dict[str, Json]) -> None:
    _, path, expected = BEHAVIOUR[name]
    if str(expected).startswith("!"):
        assert expected[1:] in built[name]["error"]["message"]
    else:
        assert looked_up(built[name]["manifest"], path) == expected


def test_go_plugin_writes_secrets_as_text_annotations(go_plugin: Path) -> None:
    secret = {"group": "g", "key": "k"}
    (answer,) = query_peer(
        [go_plugin], [with_values("29", {"template.securityContext": {"secrets": [secret]}})]
    )
    annotation = answer["manifest"]["metadata"]["annotations"]["flyte.secrets/s0"]
    alphabet = bytes.maketrans(b"abcdefghijklmnopqrstuvwxyz123456", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
    padding = "=" * (-len(annotation) % 8)
    written = base64.b32decode(annotation.encode().translate(alphabet) + padding.encode())
    assert written == b'group: "g"\nkey: "k"\n'


SUCCEEDED = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
FAILED = {**SUCCEEDED, "type": "Failed", "reason": "JobFailed", "message": "m"}
STARTED = "2026-01-01T00:00:00Z"
PHASES: dict[str, tuple[Json, str]] = {
    "30: no conditions": ({"startTime": STARTED}, "Queued JobCreated"),
    "30: an empty list of conditions": (
        {"startTime": STARTED, "conditions": []},
        "error no current condition",
    ),
    "31: no start time": ({"conditions": [SUCCEEDED]}, "error kubeflow operator hasn't updated"),
    "succeeded": ({"startTime": STARTED, "conditions": [SUCCEEDED]}, "Success"),
    "32: failed": (
        {"startTime": STARTED, "conditions": [FAILED]},
        "RetryableFailure DownstreamSystemError Job failed:\n\tJobFailed - m",
    ),
}


@pytest.mark.parametrize("name", PHASES)
def test_go_plugin_returns_the_expected_phases(name: str, go_plugin: Path) -> None:
    status, expected = PHASES[name]
    job = {"metadata": {"name": "j", "creationTimestamp": STARTED}, "spec": {}, "status": status}
    (answer,) = query_peer([go_plugin, "--phase"], [{"id": name, "job": job}])
    if "error" in answer:
        assert expected.removeprefix("error ") in answer["error"]["message"]
    else:
        phase = answer["phase"]
        parts = [phase["phase"], phase.get("code") or phase.get("reason"), phase.get("message")]
        assert " ".join(part for part in parts if part) == expected
