"""Reads a TrainJob with its TrainingRuntime, as the JobSet and the Job that Trainer creates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.admission.patch import merge_patch

DIALECT: Final = DIALECTS["TrainJob"]
RESOURCE: Final = DIALECT.resource
RUNTIME: Final = "TrainingRuntime"
CONTAINER: Final = DIALECT.container
LABELS: Final = DIALECT.labels
ROLE: Final = "node"
"""The name of the replicated job with all nodes."""
ANCESTOR: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
OWN_MANAGER: Final = "trainer.kubeflow.org/trainjob-controller"

FAIL_JOB: Final = "FailJob"
IGNORE: Final = "Ignore"
RESTART: Final = "RestartJobSet"
RESTART_FREELY: Final = "RestartJobSetAndIgnoreMaxRestarts"
FAIL: Final = "FailJobSet"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJobSpec:
    """The spec of a job, of its JobSet and of its only Job."""

    name: str
    namespace: str
    uid: str
    nodes: int
    is_suspended: bool
    template: Manifest
    """The pod template."""
    pod_rules: Sequence[Manifest]
    """The rules of the pod failure policy."""
    backoff_limit: int
    failure_policy: Manifest
    """The failure policy of the JobSet; empty if there is none."""

    @property
    def job_name(self) -> str:
        """The name of the Job."""
        return f"{self.name}-{ROLE}-0"

    def find_rule(self, reason: str) -> tuple[str, str]:
        """Return the action and the name of the rule for a failed Job, from the reason of its failure."""
        for rule in get_mappings(self.failure_policy, "rules"):
            reasons = rule.get("onJobFailureReasons")
            if not isinstance(reasons, list | tuple) or not reasons or reason in reasons:
                return get_text(rule, "action"), get_text(rule, "name")
        return RESTART, ""

    def find_pod_action(self, conditions: Sequence[Manifest]) -> tuple[str, int, str]:
        """Return the action for a failed pod, the index of its rule and the type of its condition."""
        there = {(get_text(each, "type"), get_text(each, "status")) for each in conditions}
        for index, rule in enumerate(self.pod_rules):
            for each in get_mappings(rule, "onPodConditions"):
                if (get_text(each, "type"), get_text(each, "status")) in there:
                    return get_text(rule, "action"), index, get_text(each, "type")
        return "", -1, ""


def read_spec(job: Manifest, runtime: Manifest) -> TrainJobSpec:
    """Return the spec of a job with the values of its runtime."""
    metadata, spec = get_mapping(job, "metadata"), get_mapping(job, "spec")
    template, trainer = get_mapping(runtime, "spec", "template", "spec"), get_mapping(spec, "trainer")
    policy = get_mapping(runtime, "spec", "mlPolicy")
    nodes = [get_int(each, "numNodes") for each in (trainer, policy)]
    replicated = next(iter(get_mappings(template, "replicatedJobs")), {})
    job_spec = get_mapping(replicated, "template", "spec")
    limit = get_int(job_spec, "backoffLimit")
    return TrainJobSpec(
        name=get_text(metadata, "name"),
        namespace=get_text(metadata, "namespace"),
        uid=get_text(metadata, "uid"),
        nodes=next((each for each in nodes if each is not None), 1),
        is_suspended=spec.get("suspend") is True,
        template=_merge_resources(
            get_mapping(job_spec, "template"), get_mapping(trainer, "resourcesPerNode")
        ),
        pod_rules=get_mappings(get_mapping(job_spec, "podFailurePolicy"), "rules"),
        backoff_limit=6 if limit is None else limit,
        failure_policy=get_mapping(template, "failurePolicy"),
    )


def _merge_resources(template: Manifest, more: Manifest) -> Manifest:
    """Return the pod template with these resources added to those of the training container."""
    spec = get_mapping(template, "spec")
    containers = [
        {**each, "resources": merge_patch(get_mapping(each, "resources"), more)}
        if more and get_text(each, "name") == CONTAINER
        else each
        for each in get_mappings(spec, "containers")
    ]
    return {**template, "spec": {**spec, "containers": containers}}
