"""Tables of docs/reference/phases.md from tests/golden/verdicts: observed states and their verdicts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from generated import code, table

VERDICTS = Path(__file__).parent / "golden/verdicts"

BEFORE = {
    "living/not_seen": "the job is made; no operator has looked at it yet",
    "living/created": "the operator has; pods are not all there",
    "patience/no_scheduler": "pods are there, and for a minute no scheduler has reported anything",
    "living/no_node": "no node fits",
    "living/one_of_two_placed": "one replica has a node, and for the other no node fits",
    "living/one_of_two_runs": "one runs already, and for the other no node fits",
    "living/suspended": "the job is suspended, by a queue or by a person",
    "pod_groups/kueue": "Kueue has stopped its queue",
    "pod_groups/volcano": "Volcano has no room for its group",
    "pod_groups/kai": "KAI's queue is over its limit",
    "patience/quota": "a quota of the namespace is full",
    "refusals/violates_PodSecurity": "the namespace's PodSecurity level refuses its pods",
    "refusals/failed_calling_webhook": "a webhook for pods does not answer",
    "living/all_placed": "all replicas have nodes; images are pulled, volumes mounted",
    "living/pulling": "an image cannot be pulled",
    "container_waits/CreateContainerError": "a container cannot be made",
    "container_waits/CrashLoopBackOff": "a replica ends again and again, and the job has not run yet",
    "living/suspended_once_admitted": "suspended again, after it had been admitted",
}
RUNNING = {
    "living/running": "the operator reports it",
    "living/restarting": "the operator restarts a replica",
    "living/replaced": "a replica was made anew, and has no node yet",
    "living/suspended_while_running": "the job is suspended while it runs",
    "patience/crash_loop": "a replica ends again and again while the others run",
}
GIVEN_UP = {
    "patience/no_operator": "no operator has handled the job for `no-status-timeout`",
    "patience/queue_too_long": "a queue held it for longer than `queue-timeout` or `queue_timeout_seconds`",
    "patience/suspended_too_long": "the same, and it is not known who holds it",
    "patience/quota_too_long": "the same, with a full quota",
    "patience/not_allowed": "its pods are refused, for `no-status-timeout`",
    "patience/no_node_too_long": "no node for longer than the author's `pending_timeout_seconds`",
    "patience/pending_too_long": "placed, and not started for `pod-pending-timeout`",
    "patience/image_too_long": "an image could not be pulled for `image-pull-backoff-grace-period`",
    "patience/no_image_s_name": "an image's name is none",
    "patience/no_such_secret": "no such Secret or ConfigMap for `create-container-config-error-grace-period`",
    "patience/no_such_program": "the image has no such program, for `create-container-error-grace-period`",
    "patience/the_runtime": "the node's runtime makes no container for as long",
    "patience/the_job_s_deadline": "it ran for longer than `active_deadline_seconds` of its run policy",
    "patience/the_platform_s_deadline": "the same, of the platform's `active-deadline`",
}
ENDS = {
    "ends/success": "the job succeeded",
    "ends/success_and_an_error_that_counts": "it succeeded, and a replica has left an error file",
    "ends/success_and_failure_with_outputs": "an elastic job succeeded and failed, and there are outputs",
    "ends/success_and_failure_without": "the same without outputs",
    "ends/its_own_words": "a replica raised an exception",
    "ends/recoverable": "the same, a `FlyteRecoverableException`",
    "ends/only_a_lost_peer": "all that is left is the exception of a replica that lost a peer",
    "ends/gpu_memory": "torch found no more GPU memory",
    "ends/host_memory": "the kernel killed a container for its memory",
    "ends/killed": "killed for an unknown reason",
    "ends/crash": "a crash in native code",
    "ends/exit_code": "an exit code, and no error file",
    "ends/no_such_command": "the shell found no such command",
    "ends/told_to_end": "stopped by SIGTERM",
    "ends/preempted": "preempted by a job of a higher priority",
    "ends/pod_deleted": "a pod is deleted by a user",
    "ends/node_shut_down": "its node was shut down",
    "ends/evicted_alone": "evicted by its node",
    "ends/deadline_by_the_operator": "the operator's own deadline",
    "ends/backoff_limit": "the operator's limit of restarts, and the pods are gone",
    "ends/nobody_left_to_say": "failed, and all pods are gone",
    "ends/gone": "the job is gone",
    "ends/gone_after_its_time_to_live": "the job is gone, and its outputs are there",
    "ends/gone_with_an_error": "the job is gone, and an error file is there",
}
TRAIN_JOBS = {
    "train_jobs/created": "the job is created; there are no pods",
    "train_jobs/pending": "all nodes have pods, and none has a Kubernetes node",
    "train_jobs/suspended": "the job is suspended",
    "train_jobs/initializers_run": "an initializer loads the data set; no node has a pod",
    "train_jobs/nodes_wait_after_initializers": "the data set is loaded, and no node has a Kubernetes node",
    "train_jobs/running": "the container of a node has started",
    "train_jobs/resumed_but_reported_as_suspended": "the same after a resume, reported as suspended",
    "train_jobs/restarting": "JobSet has deleted the pods of an attempt to restart all nodes",
    "train_jobs/restarted": "all nodes run again",
    "train_jobs/succeeded": "Trainer reports the end",
    "train_jobs/succeeded_without_surplus_node": "all nodes but one that was never placed have succeeded",
    "train_jobs/failed": "a node failed",
    "train_jobs/initializer_failed": "an initializer failed",
    "train_jobs/initializer_lost_its_store": "an initializer failed, and its output shows a temporary error",
    "train_jobs/too_many_disruptions": "it was restarted more often than `kfpytorch.max-disruptions` permits",
    "train_jobs/creation_failed": "its objects cannot be created, for `no-status-timeout`",
}
TABLES: Mapping[str, Mapping[str, str]] = {
    "before": BEFORE,
    "running": RUNNING,
    "given-up": GIVEN_UP,
    "ends": ENDS,
    "train-jobs": TRAIN_JOBS,
}


def verdict(case: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load((VERDICTS / f"{case}.yaml").read_text())["verdict"]
    return found


def build_phase_table(name: str) -> str:
    """Return a table with one row per case, in order, with the first line of each message."""
    rows = [row(case, label) for case, label in TABLES[name].items()]
    return table(["seen", "phase", "reason", "cause", "message begins"], rows)


def row(case: str, label: str) -> list[str]:
    result = verdict(case)
    first = result["message"].splitlines()[0].replace("|", r"\|").replace("<", "&lt;")
    return [label, code(result["phase"]), code(result["reason"]), code(result["cause"] or ""), first]
