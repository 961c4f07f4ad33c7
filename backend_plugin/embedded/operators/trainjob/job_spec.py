"""Reads a TrainJob with its TrainingRuntime, as the JobSet and the Job that follow from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.dialects.table import DIALECTS
from backend_plugin.core.reading import get_int, get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest

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
    deadline: int | None
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
        deadline=get_int(spec, "activeDeadlineSeconds"),
        template=_merge_trainer(get_mapping(job_spec, "template"), trainer),
        pod_rules=get_mappings(get_mapping(job_spec, "podFailurePolicy"), "rules"),
        backoff_limit=6 if limit is None else limit,
        failure_policy=get_mapping(template, "failurePolicy"),
    )


def _merge_trainer(template: Manifest, trainer: Manifest) -> Manifest:
    """Return the pod template with the fields of the trainer in its training container."""
    spec = get_mapping(template, "spec")
    containers = [
        _merge_container(each, trainer) if get_text(each, "name") == CONTAINER else each
        for each in get_mappings(spec, "containers")
    ]
    return {**template, "spec": {**spec, "containers": containers}}


def _merge_container(container: Manifest, trainer: Manifest) -> Manifest:
    env = {get_text(each, "name"): each for each in get_mappings(container, "env")}
    env |= {get_text(each, "name"): each for each in get_mappings(trainer, "env")}
    merged: Mapping[str, object] = {
        **container,
        **{key: trainer[key] for key in ("image", "command", "args") if trainer.get(key)},
        **({"env": list(env.values())} if env else {}),
    }
    resources = get_mapping(trainer, "resourcesPerNode")
    if resources:
        there = get_mapping(container, "resources")
        both = {
            key: {**get_mapping(there, key), **get_mapping(resources, key)}
            for key in ("limits", "requests")
            if key in there or key in resources
        }
        merged = {**merged, "resources": both}
    return merged  # type: ignore[return-value]
