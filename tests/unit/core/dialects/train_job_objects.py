"""Builders for a TrainJob and its pods as JSON, and for the plan of one."""

import json
from datetime import datetime, timedelta, timezone

from builders import a_run, a_template

from backend_plugin.core import settings
from backend_plugin.core.dialects.trainjob import options
from backend_plugin.core.object_readers import read_observed
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling.capabilities import NOTHING

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
REPLICAS = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 2}}
ELASTIC = {
    "workerReplicas": {"replicas": 4},
    "elasticConfig": {"minReplicas": 2, "maxReplicas": 4, "nprocPerNode": 8, "maxRestarts": 3},
}


def at(seconds):
    return (BEGAN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def plan_train_job(custom, found=NOTHING, **fields):
    """Plan a task on a platform with TrainJobs; `fields` are parts of the task, its run and settings."""
    ours = {"dialect": "trainjob", **fields.pop("ours", {})}
    run = a_run(**fields.pop("run", {}))
    return plan(a_template(custom, **fields), run, settings.read({"kfpytorch": ours}), (), found)


def get_jobset(planned):
    (runtime,) = planned.prerequisites
    return runtime["spec"]["template"]["spec"]


def get_train_job_options(job):
    return json.loads(job["metadata"]["annotations"][options.ANNOTATION])


def build_job(*conditions, nodes=2, suspend=False, **values):
    """Build a TrainJob; `values` are its options in the annotation."""
    annotations = {options.ANNOTATION: options.encode(options.JobOptions(**values))} if values else {}
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "creationTimestamp": at(0)}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"trainer": {"numNodes": nodes, "numProcPerNode": 8}, "suspend": suspend},
        "status": {"conditions": [*conditions]},
    }


def build_condition(kind, since=100, **fields):
    return {"type": kind, "status": "True", "lastTransitionTime": at(since), **fields}


def build_pod(index, phase="Pending", *, created=1, attempt=0, **state):
    """Build the pod of a node; `state` are `suffix`, `node`, `deleted`, and the state of its container."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "j",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    name = f"j-node-0-{index}-{state.pop('suffix', 'aaaaa')}"
    node = state.pop("node", "" if phase == "Pending" else "n1")
    deleted = {"deletionTimestamp": at(state.pop("deleted"))} if "deleted" in state else {}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "creationTimestamp": at(created), **deleted},
        "spec": {"nodeName": node, "containers": [{"name": "node"}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "node", "state": state}] if state else []},
    }


def build_running(index, since=5, **fields):
    return build_pod(index, "Running", running={"startedAt": at(since)}, **fields)


def build_ended(index, code=0, finished=90, **fields):
    state = {"exitCode": code, "startedAt": at(5), "finishedAt": at(finished)}
    return build_pod(index, "Failed" if code else "Succeeded", terminated=state, **fields)


def build_workload(*conditions, **spec):
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "trainjob-j-12345", "namespace": "ns"},
        "spec": {"queueName": "team", **spec},
        "status": {"conditions": [*conditions]},
    }


def observe(job, *pods, **more):
    return read_observed({"job": job, "pods": [*pods], **more})
