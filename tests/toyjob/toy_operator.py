"""An operator for tests: it creates the pods of a ToyJob, and ends the job when they end."""

from typing import Any

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import format_time, get_name, get_phase, get_uid
from backend_plugin.embedded.operators.base import (
    Action,
    CreatePod,
    JobSnapshot,
    OperatorEmulation,
    ReconcileResult,
)

DIALECT = DIALECTS["ToyJob"]
LABELS = DIALECT.labels
GATE = "hold"


def admit(manifest: Manifest) -> Manifest:
    return manifest


def reconcile(snapshot: JobSnapshot) -> ReconcileResult:
    status = get_mapping(snapshot.job, "status")
    if "over" in status:
        return ReconcileResult()
    there = {get_name(pod) for pod in snapshot.pods}
    wanted = [
        _build_pod(snapshot.job, team, index)
        for team in get_mappings(get_mapping(snapshot.job, "spec"), "teams")
        for index in range(get_int(team, "size") or 0)
    ]
    made = tuple(CreatePod(pod) for pod in wanted if get_name(pod) not in there)
    new = _build_status(snapshot, is_whole=not made, count=len(wanted))
    return ReconcileResult(actions=made, status=None if new == status else new)


def _build_status(snapshot: JobSnapshot, *, is_whole: bool, count: int) -> dict[str, Any]:
    old, at = get_mapping(snapshot.job, "status"), format_time(snapshot.now)
    phases = [get_phase(pod) for pod in snapshot.pods]
    state = "Accepted"
    if "Failed" in phases:
        state = "Broken"
    elif phases.count("Succeeded") == count:
        state = "Done"
    elif "Running" in phases:
        state = "Playing"
    history = get_mappings(old, "history")
    if state not in [get_text(each, "state") for each in history]:
        history = [*history, {"state": state, "at": at}]
    times = {"began": at} if is_whole else {}
    ends = {"over": at} if state in ("Done", "Broken") else {}
    return {**times, **old, **ends, "history": history}


def _build_pod(job: Manifest, team: Manifest, index: int) -> Manifest:
    name, role = get_name(job), get_text(team, "team").lower()
    template = get_mapping(team, "pod")
    spec, head = get_mapping(template, "spec"), get_mapping(template, "metadata")
    variables: list[Manifest] = [
        {"name": "LEADER", "value": f"{name}-in-master-0:{DIALECT.port.number}"},
        {"name": "TEAM", "value": role},
    ]
    containers = [
        {**each, "env": [*get_mappings(each, "env"), *variables]} for each in get_mappings(spec, "containers")
    ]
    waits = [{"name": GATE, "image": "none", "command": ["/none"]}] if role != "master" else []
    owner = {"apiVersion": DIALECT.resource.api_version, "kind": DIALECT.name, "name": name}
    labels = {LABELS.job_name: name, LABELS.role: role, LABELS.index: str(index)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-in-{role}-{index}",
            "namespace": get_text(get_mapping(job, "metadata"), "namespace"),
            "labels": {**get_text_map(head, "labels"), **labels},
            "annotations": get_text_map(head, "annotations"),
            "ownerReferences": [
                {**owner, "uid": get_uid(job), "controller": True, "blockOwnerDeletion": True}
            ],
        },
        "spec": {**spec, "containers": containers, "initContainers": waits, "restartPolicy": "Never"},
    }


def build_action_event(_: JobSnapshot, action: Action, refusal: str | None) -> Manifest:
    return {"type": "Normal", "reason": type(action).__name__, "message": refusal or "done"}


OPERATOR = OperatorEmulation(
    dialect=DIALECT,
    admit=admit,
    reconcile=reconcile,
    build_action_event=build_action_event,
    gate=GATE,
    leader="master",
)
