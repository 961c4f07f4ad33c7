"""Tables of docs/reference/phases.md from tests/golden/verdicts: observed states and their verdicts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from generated import code, table

VERDICTS = Path(__file__).parent / "golden/verdicts"

BEFORE = {
    "living/not_seen": "the job is created; the operator has not handled it yet",
    "living/created": "the operator has handled it; pods are missing",
    "patience/no_scheduler": "the pods exist; no scheduler has reported anything for a minute",
    "living/no_node": "no node fits",
    "living/one_of_two_placed": "one replica has a node; no node fits the other",
    "living/one_of_two_runs": "one replica runs; no node fits the other",
    "living/suspended": "a queue or a user has suspended the job",
    "pod_groups/kueue": "Kueue has stopped its queue",
    "pod_groups/volcano": "Volcano cannot place its pod group",
    "pod_groups/kai": "KAI's queue is over its limit",
    "patience/quota": "a quota of the namespace is full",
    "refusals/violates_PodSecurity": "the PodSecurity level of the namespace rejects its pods",
    "refusals/failed_calling_webhook": "a webhook for pods does not respond",
    "living/all_placed": "all replicas have nodes; images and volumes are prepared",
    "living/pulling": "an image cannot be pulled",
    "container_waits/CreateContainerError": "a container cannot be created",
    "container_waits/CrashLoopBackOff": "a replica ends repeatedly; the job has not run yet",
    "living/suspended_once_admitted": "the job is suspended again after its admission",
}
RUNNING = {
    "living/running": "the operator reports that the job runs",
    "living/restarting": "the operator restarts a replica",
    "living/replaced": "a replacement of a replica has no node yet",
    "living/suspended_while_running": "the job is suspended while it runs",
    "patience/crash_loop": "a replica ends repeatedly while the others run",
}
GIVEN_UP = {
    "patience/no_operator": "no operator has handled the job for `no-status-timeout`",
    "patience/queue_too_long": "a queue held it for longer than `queue-timeout` or `queue_timeout_seconds`",
    "patience/suspended_too_long": "the job was suspended for longer than `queue-timeout`, by no known queue",
    "patience/quota_too_long": "a full quota held it for longer than `queue-timeout`",
    "patience/not_allowed": "its pods were rejected for `no-status-timeout`",
    "patience/no_node_too_long": "no node fitted for longer than the task's `pending_timeout_seconds`",
    "patience/pending_too_long": "a placed replica did not start for `pod-pending-timeout`",
    "patience/image_too_long": "an image could not be pulled for `image-pull-backoff-grace-period`",
    "patience/no_image_s_name": "the name of an image is invalid",
    "patience/no_such_secret": (
        "a Secret or ConfigMap was absent for `create-container-config-error-grace-period`"
    ),
    "patience/no_such_program": "the image lacked the program for `create-container-error-grace-period`",
    "patience/the_runtime": (
        "the container runtime created no container for `create-container-error-grace-period`"
    ),
    "patience/the_job_s_deadline": "the job ran for longer than `active_deadline_seconds` of its run policy",
    "patience/the_platform_s_deadline": "the job ran for longer than the platform's `active-deadline`",
}
ENDS = {
    "ends/success": "the job succeeded",
    "ends/success_and_an_error_that_counts": "the job succeeded, and a replica wrote an error file",
    "ends/success_and_failure_with_outputs": "an elastic job is both Succeeded and Failed, and outputs exist",
    "ends/success_and_failure_without": "an elastic job is both Succeeded and Failed, and no outputs exist",
    "ends/its_own_words": "a replica raised an exception",
    "ends/recoverable": "a replica raised a `FlyteRecoverableException`",
    "ends/only_a_lost_peer": "only the exception of a replica that lost its peer is known",
    "ends/gpu_memory": "torch ran out of GPU memory",
    "ends/host_memory": "the kernel killed a container because of its memory use",
    "ends/killed": "a container was killed for an unknown reason",
    "ends/crash": "a replica crashed in native code",
    "ends/exit_code": "a replica ended with an exit code, without an error file",
    "ends/no_such_command": "the shell did not find the command",
    "ends/told_to_end": "SIGTERM stopped a replica",
    "ends/preempted": "a job of a higher priority preempted a replica",
    "ends/pod_deleted": "a user deleted a pod",
    "ends/node_shut_down": "the node of a replica was shut down",
    "ends/evicted_alone": "a node evicted a replica",
    "ends/deadline_by_the_operator": "the operator enforced a deadline",
    "ends/backoff_limit": "the restarts reached `backoffLimit`, and the pods are gone",
    "ends/nobody_left_to_say": "the job failed, and all pods are gone",
    "ends/gone": "the job is gone",
    "ends/gone_after_its_time_to_live": "the job is gone, and its outputs exist",
    "ends/gone_with_an_error": "the job is gone, and an error file exists",
}
TRAIN_JOBS = {
    "train_jobs/created": "the job is created; there are no pods",
    "train_jobs/pending": "all nodes have pods, and none has a Kubernetes node",
    "train_jobs/suspended": "the job is suspended",
    "train_jobs/initializers_run": "an initializer loads the data set; no node has a pod",
    "train_jobs/nodes_wait_after_initializers": "the data set is loaded, and no node has a Kubernetes node",
    "train_jobs/running": "the container of a node has started",
    "train_jobs/resumed_but_reported_as_suspended": "the job was resumed, and the containers have started",
    "train_jobs/restarting": "JobSet has deleted the pods of an attempt to restart all nodes",
    "train_jobs/restarted": "all nodes run again",
    "train_jobs/succeeded": "Trainer reports the completion",
    "train_jobs/succeeded_without_surplus_node": "all nodes but one that was never placed have succeeded",
    "train_jobs/failed": "a node failed",
    "train_jobs/initializer_failed": "an initializer failed",
    "train_jobs/initializer_lost_its_store": "an initializer failed, and its output shows a temporary error",
    "train_jobs/too_many_disruptions": "there were more restarts than `kfpytorch.max-disruptions` permits",
    "train_jobs/creation_failed": "the objects of the job could not be created for `no-status-timeout`",
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
    return table(["state", "phase", "reason", "cause", "message begins"], rows)


def row(case: str, label: str) -> list[str]:
    result = verdict(case)
    first = result["message"].splitlines()[0].replace("|", r"\|").replace("<", "&lt;")
    return [label, code(result["phase"]), code(result["reason"]), code(result["cause"] or ""), first]
