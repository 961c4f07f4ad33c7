"""Writes the statuses of simulated pods, as kubelets do."""

import time

import httpx

from rig.api import pods


def run(api, pod):
    running = {"running": {"startedAt": format_now()}, "terminated": None}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": format_now()}
    kept = [each for each in pod["status"].get("conditions", ()) if each["type"] != "Ready"]
    write(api, pod, running, phase="Running", startTime=format_now(), conditions=[*kept, ready])


def end(api, pod, code=0, container_reason="", **status):
    """Report that all containers of the pod have ended; `status` has further fields of its status."""
    metadata, now = pod["metadata"], format_now()
    found = api.get(pods(metadata["namespace"], metadata["name"])) or pod
    running = [each["state"].get("running") or {} for each in found["status"].get("containerStatuses", ())]
    ended = {
        "exitCode": code,
        "reason": container_reason or ("Error" if code else "Completed"),
        # The server ignores error files from before the start.
        "startedAt": next((each["startedAt"] for each in running if "startedAt" in each), now),
        "finishedAt": now,
    }
    phase = "Failed" if code else "Succeeded"
    write(api, pod, {"running": None, "terminated": ended}, **{"phase": phase, **status})


def write(api, pod, state, **status):
    """Write the state of all containers of a pod, unless it has been deleted with its job."""
    metadata = pod["metadata"]
    about = {"imageID": "", "ready": bool(state.get("running")), "restartCount": 0, "state": dict(state)}
    containers = [
        {"name": each["name"], "image": each["image"], **about} for each in pod["spec"]["containers"]
    ]
    answer = api.try_patch(
        f"{pods(metadata['namespace'], metadata['name'])}/status",
        {"status": {**status, "containerStatuses": containers}},
    )
    assert answer.is_success or answer.status_code == httpx.codes.NOT_FOUND, answer.text


def format_now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
