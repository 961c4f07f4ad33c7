"""Reads the spec of the JobSet and the Job that Trainer creates from a TrainJob and its TrainingRuntime."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text, get_texts
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.objects import get_name, merge_patch
from backend_plugin.embedded.operators.base import OwnerJob
from kfpytorch_common.completion_indexes import parse_indexes

DIALECT: Final = DIALECTS["TrainJob"]
CONTAINER: Final = DIALECT.container
LABELS: Final = DIALECT.labels
ROLE: Final = "node"
"""The name of the replicated job of a JobSet. Its pods are all the nodes of a TrainJob."""
OWN_MANAGER: Final = "trainer.kubeflow.org/trainjob-controller"

FAIL_JOB: Final = "FailJob"
IGNORE: Final = "Ignore"
RESTART: Final = "RestartJobSet"
RESTART_FREELY: Final = "RestartJobSetAndIgnoreMaxRestarts"
FAIL: Final = "FailJobSet"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJobSpec(OwnerJob):
    """The fields of a TrainJob, its JobSet and the only Job of that JobSet, merged into one object."""

    nodes: int
    is_suspended: bool
    template: Manifest
    """The pod template of the Job."""
    pod_rules: Sequence[Manifest]
    """The rules of the pod failure policy of the Job."""
    success_rules: Sequence[Manifest]
    """The rules of the success policy of the Job."""
    failure_policy: Manifest
    """The failure policy of the JobSet; empty if there is none."""

    @property
    def job_name(self) -> str:
        """The name of the only batch/v1 Job of the JobSet."""
        return f"{self.name}-{ROLE}-0"

    def find_rule(self, reason: str, message: str) -> tuple[str, str]:
        """Return the action and the name of the first JobSet failure rule that matches a failed Job.

        If no rule matches, the action is `RestartJobSet` and the name is empty.
        """
        for rule in get_mappings(self.failure_policy, "rules"):
            # A rule without reasons matches any reason; a rule without patterns matches any message.
            reasons = get_texts(rule, "onJobFailureReasons") or [reason]
            patterns = get_texts(rule, "onJobFailureMessagePatterns") or [""]
            if reason in reasons and any(re.search(each, message) for each in patterns):
                return get_text(rule, "action"), get_text(rule, "name")
        return RESTART, ""

    def find_pod_action(self, pod: Manifest) -> tuple[str, str]:
        """Return the action of the first pod failure rule that matches a pod, and a message about the match.

        Both are empty if no rule matches.
        """
        name = f"{self.namespace}/{get_name(pod)}"
        for index, rule in enumerate(self.pod_rules):
            match = _find_exit(pod, get_mapping(rule, "onExitCodes"), name) or _find_condition(
                pod, rule, name
            )
            if match:
                action = get_text(rule, "action")
                return action, f"{match} matching {action} rule at index {index}"
        return "", ""

    def is_success(self, completed: Collection[int]) -> bool:
        """True if the completed indexes satisfy a rule of the success policy."""
        for rule in self.success_rules:
            ranges = parse_indexes(get_text(rule, "succeededIndexes")) or ()
            if set(chain.from_iterable(ranges)).issubset(completed):
                return True
        return False


def _find_exit(pod: Manifest, codes: Manifest, name: str) -> str:
    values, container = codes.get("values"), get_text(codes, "containerName")
    for each in get_mappings(pod, "status", "containerStatuses"):
        code = get_int(get_mapping(each, "state", "terminated"), "exitCode")
        if not code or container not in ("", get_text(each, "name")) or not isinstance(values, list | tuple):
            continue
        if (code in values) is (codes.get("operator") == "In"):
            return f"Container {get_text(each, 'name')} for pod {name} failed with exit code {code}"
    return ""


def _find_condition(pod: Manifest, rule: Manifest, name: str) -> str:
    wanted = {
        (get_text(each, "type"), get_text(each, "status")) for each in get_mappings(rule, "onPodConditions")
    }
    for each in get_mappings(get_mapping(pod, "status"), "conditions"):
        if (get_text(each, "type"), get_text(each, "status")) in wanted:
            return f"Pod {name} has condition {get_text(each, 'type')}"
    return ""


def read_spec(job: Manifest, runtime: Manifest) -> TrainJobSpec:
    """Return the spec of a TrainJob, combined with the spec of its training runtime."""
    metadata, spec = get_mapping(job, "metadata"), get_mapping(job, "spec")
    template, trainer = get_mapping(runtime, "spec", "template", "spec"), get_mapping(spec, "trainer")
    policy = get_mapping(runtime, "spec", "mlPolicy")
    nodes = [get_int(each, "numNodes") for each in (trainer, policy)]
    replicated = next(iter(get_mappings(template, "replicatedJobs")), {})
    job_spec = get_mapping(replicated, "template", "spec")
    return TrainJobSpec(
        dialect=DIALECT,
        name=get_text(metadata, "name"),
        namespace=get_text(metadata, "namespace"),
        uid=get_text(metadata, "uid"),
        nodes=next((each for each in nodes if each is not None), 1),
        is_suspended=spec.get("suspend") is True,
        template=_merge_resources(
            get_mapping(job_spec, "template"), get_mapping(trainer, "resourcesPerNode")
        ),
        pod_rules=get_mappings(get_mapping(job_spec, "podFailurePolicy"), "rules"),
        success_rules=get_mappings(get_mapping(job_spec, "successPolicy"), "rules"),
        failure_policy=get_mapping(template, "failurePolicy"),
    )


def _merge_resources(template: Manifest, more: Manifest) -> Manifest:
    spec = get_mapping(template, "spec")
    containers = [
        {**each, "resources": merge_patch(get_mapping(each, "resources"), more)}
        if more and get_text(each, "name") == CONTAINER
        else each
        for each in get_mappings(spec, "containers")
    ]
    return {**template, "spec": {**spec, "containers": containers}}
