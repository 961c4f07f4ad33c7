"""The interface of an operator, and functions that the checks of several operators share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from backend_plugin.core.plan import Plan
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.check import Check, Judge, Violation
from backend_plugin.doctor.facts import Facts, RolePods, Subject

KEPT_SECONDS: Final = 600
"""Seconds that an ended trial job is kept, if ``kfpytorch doctor`` is killed before it deletes the job."""
_HOOK: Final = "failed calling webhook"


@dataclass(frozen=True, slots=True)
class Program:
    """The program of an operator. Its Deployments are found by their name, or by the name of their image."""

    deployment: str
    """The usual name of its Deployment."""
    image: str
    """A part of the name of its image."""

    def list_deployments(self, facts: Facts) -> Sequence[Manifest]:
        """Return the Deployments that run the program."""
        return [
            each
            for each in facts.get_objects(Subject.DEPLOYMENTS)
            if deployments.get_name(each) == self.deployment or deployments.has_program(each, self.image)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSupport:
    """The checks and functions of the doctor for the operator of one dialect (kind of job)."""

    checks: Sequence[Check]
    """The checks of the operator's API, Deployment and webhooks."""
    program: Program
    build_role_pods: Callable[[Manifest, Sequence[Manifest]], Sequence[RolePods]]
    """Return the pods of each role of a job, as the operator creates them.

    The second parameter contains the prerequisites of the job.
    """
    build_invalid_job: Callable[[str], Manifest]
    """Return a job in the given namespace; the webhook of the operator rejects this job."""
    build_trial: Callable[[Plan, Callable[[Manifest], Manifest], int], Plan]
    """Return the plan of a trial job: the given job with changed pod templates and a deadline in seconds.

    The trial job has no retries, and is kept for `KEPT_SECONDS` after its end.
    """
    list_secrets: Callable[[Manifest], Sequence[str]] = lambda _: ()
    """Return the names of the Secrets that a job needs in addition to those of its replicas."""
    schemas: Sequence[str] = ()
    """The names of the CustomResourceDefinitions that the checks read, in addition to that of the job."""


def iter_schema_versions(facts: Facts) -> Iterator[tuple[str, Manifest]]:
    """Yield each version of each CustomResourceDefinition in the facts, with its kind."""
    for schema in facts.get_objects(Subject.JOB_SCHEMA):
        kind = get_text(schema, "spec", "names", "kind")
        yield from ((kind, version) for version in get_mappings(schema, "spec", "versions"))


def list_missing_fields(version: Manifest, paths: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the field paths in `paths` that a CustomResourceDefinition version lacks, as dotted names.

    All paths are relative to ``spec``.
    """
    missing = []
    for path in paths:
        *parents, last = ("spec", *path)
        inner = [part for each in parents for part in ("properties", each)]
        if last not in get_mapping(version, "schema", "openAPIV3Schema", *inner, "properties"):
            missing.append(".".join(path))
    return missing


def report_no_ready_pod(operator: str, deployment: Manifest) -> Violation:
    """Return the violation for an operator whose Deployment has no ready pod."""
    name = deployments.format_kubectl_name(deployment)
    return Violation(f"{operator} has no ready pod: {name}", f"kubectl describe {name}; kubectl logs {name}")


def report_unreachable_webhook(facts: Facts, endpoints: str) -> Iterator[Violation]:
    """Yield a violation if a webhook did not answer a dry run.

    `endpoints` are the arguments of ``kubectl get endpoints`` in the remedy.
    """
    replies = (facts.job_reply, facts.invalid_reply, *facts.pod_replies.values())
    for message in [each.message for each in replies if _HOOK in each.message][:1]:
        yield Violation(
            f"a webhook does not answer: {message}",
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations; kubectl get "
            f"endpoints {endpoints}",
        )


def accepts_invalid_job(facts: Facts, check_operator_missing: Judge) -> bool:
    """True if the cluster accepted an invalid job in a dry run.

    False if the operator is known to be missing (by its check `check_operator_missing`), because then no
    webhook can reject the job.
    """
    if facts.invalid_reply.stored is None:
        return False
    is_observed = not {Subject.DEPLOYMENTS, Subject.JOBS} & {*facts.unseen}
    return not (is_observed and any(check_operator_missing(facts)))
