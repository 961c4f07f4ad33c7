"""The failure and success policies of a TrainJob's JobSet, and of the Job that runs the nodes."""

from typing import Final

from backend_plugin.core.dialects.trainjob.initializers import build_initializer_rules
from backend_plugin.core.dialects.trainjob.resource import CONTAINER
from backend_plugin.core.job import TrainingJob
from backend_plugin.core.train_job_options import DISRUPTION, PodFailureRule
from backend_plugin.core.values import JsonValue, Manifest

_FAIL_JOB: Final = "FailJob"
_BY_RULE: Final = ["PodFailurePolicy"]
_DISRUPTED: Final = f" has condition {DISRUPTION} "
"""A text in the message of a Job that failed because of a disruption of a pod."""


def build_failure_policy(job: TrainingJob, restarts: int) -> Manifest:
    """Return the `failurePolicy` of the JobSet; `restarts` limits restarts after failures only."""
    disruption: dict[str, JsonValue] = {
        "name": "disruption",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": _BY_RULE,
    }
    rules: list[JsonValue] = [*build_initializer_rules(job), disruption]
    if any(rule.action == _FAIL_JOB for rule in job.train_options.pod_failure_rules):
        # A disruption and a rule of the author fail the Job with the same reason and different messages.
        disruption["onJobFailureMessagePatterns"] = [_DISRUPTED]
        rules.append({"name": "failure", "action": "FailJobSet", "onJobFailureReasons": _BY_RULE})
    return {
        "maxRestarts": restarts,
        # The pods of the earlier attempt have the same host names, and they may hold the GPUs.
        "restartStrategy": "BlockingRecreate",
        "rules": rules,
    }


def build_job_policies(job: TrainingJob) -> Manifest:
    """Return the field `podFailurePolicy` of the nodes' Job.

    If the author requires only some nodes to succeed, also return the field `successPolicy`.
    """
    # If the rendezvous accepts fewer nodes, the other nodes continue without a lost one.
    lost = "Ignore" if job.elastic and job.elastic.min_replicas < job.elastic.max_replicas else _FAIL_JOB
    options = job.train_options
    # A disrupted pod also has an exit code, so its rule is the first one.
    rules: list[JsonValue] = [
        {"action": lost, "onPodConditions": [{"type": DISRUPTION, "status": "True"}]},
        *map(_build_rule, options.pod_failure_rules),
    ]
    success: Manifest = {"successPolicy": {"rules": [{"succeededIndexes": options.succeeded_indexes}]}}
    return {
        "podFailurePolicy": {"rules": rules},
        **(success if options.succeeded_indexes is not None else {}),
    }


def _build_rule(rule: PodFailureRule) -> Manifest:
    if rule.pod_conditions:
        conditions = [
            {"type": name, "status": status} for name, status in sorted(rule.pod_conditions.items())
        ]
        return {"action": rule.action, "onPodConditions": conditions}
    codes: Manifest = {"containerName": CONTAINER, "operator": rule.operator, "values": [*rule.exit_codes]}
    return {"action": rule.action, "onExitCodes": codes}
