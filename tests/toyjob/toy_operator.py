"""An operator for tests: it creates the pods of a ToyJob, and ends the job when they end."""

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.embedded.objects import format_time, get_name, get_phase, get_uid
from backend_plugin.embedded.operators.base import Create, OperatorEmulation, ReconcileResult

DIALECT = DIALECTS["ToyJob"]
LABELS = DIALECT.labels
GATE = "hold"


def reconcile(snapshot):
    status = snapshot.job.get("status", {})
    if "over" in status:
        return ReconcileResult()
    there = {get_name(pod) for pod in snapshot.pods}
    wanted = [
        _build_pod(snapshot.job, team, index)
        for team in snapshot.job["spec"]["teams"]
        for index in range(team["size"])
    ]
    made = tuple(Create(pod) for pod in wanted if get_name(pod) not in there)
    new = _build_status(snapshot, status, len(wanted))
    return ReconcileResult(actions=made, status=None if new == status else new)


def _build_status(snapshot, old, count):
    phases = [get_phase(pod) for pod in snapshot.pods]
    state = "Accepted"
    if "Failed" in phases:
        state = "Broken"
    elif phases.count("Succeeded") == count:
        state = "Done"
    elif "Running" in phases:
        state = "Playing"
    at, history = format_time(snapshot.now), old.get("history", [])
    if state not in [each["state"] for each in history]:
        history = [*history, {"state": state, "at": at}]
    ends = {"over": at} if state in ("Done", "Broken") else {}
    return {"began": at, **old, **ends, "history": history}


def _build_pod(job, team, index):
    name, role, template = get_name(job), team["team"].lower(), team["pod"]
    head, labels = template["metadata"], {LABELS.job_name: name, LABELS.role: role, LABELS.index: str(index)}
    variables = [
        {"name": "LEADER", "value": f"{name}-in-master-0:{DIALECT.port.number}"},
        {"name": "TEAM", "value": role},
    ]
    containers = [{**one, "env": [*one.get("env", ()), *variables]} for one in template["spec"]["containers"]]
    waits = [{"name": GATE, "image": "none", "command": ["/none"]}] if role != "master" else []
    owner = {"apiVersion": DIALECT.resource.api_version, "kind": DIALECT.name, "name": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **head,
            "name": f"{name}-in-{role}-{index}",
            "namespace": job["metadata"]["namespace"],
            "labels": {**head.get("labels", {}), **labels},
            "ownerReferences": [{**owner, "uid": get_uid(job), "controller": True}],
        },
        "spec": {
            **template["spec"],
            "containers": containers,
            "initContainers": waits,
            "restartPolicy": "Never",
        },
    }


OPERATOR = OperatorEmulation(
    dialect=DIALECT,
    admit=lambda manifest, _: manifest,
    reconcile=reconcile,
    build_action_event=lambda *_: {"type": "Normal", "reason": "CreatePod", "message": "done"},
    gate=GATE,
    leader="master",
)
