"""Functions that the checks of several operators share: they read API schemas and replies of webhooks."""

from collections.abc import Iterator, Sequence
from typing import Final

from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor.check import Judge, Violation
from backend_plugin.doctor.facts import Facts, Subject

_HOOK: Final = "failed calling webhook"


def iter_schema_versions(facts: Facts) -> Iterator[tuple[str, Manifest]]:
    """Yield each version of each CustomResourceDefinition in the facts, with its kind."""
    for schema in facts.get_objects(Subject.JOB_SCHEMA):
        kind = get_text(schema, "spec", "names", "kind")
        yield from ((kind, version) for version in get_mappings(schema, "spec", "versions"))


def list_lacking_fields(version: Manifest, paths: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the dotted names of the fields at `paths` below ``spec`` that a version does not have."""
    return [".".join(path) for path in paths if not _has_field(version, path)]


def _has_field(version: Manifest, path: Sequence[str]) -> bool:
    *parents, last = ("spec", *path)
    inner = [part for each in parents for part in ("properties", each)]
    return last in get_mapping(version, "schema", "openAPIV3Schema", *inner, "properties")


def report_unreachable_webhook(facts: Facts, endpoints: str) -> Iterator[Violation]:
    """Yield a violation if a webhook did not answer a dry run.

    `endpoints` are the arguments of ``kubectl get endpoints`` in the remedy.
    """
    replies = (facts.job_reply, facts.invalid_reply, *facts.pod_replies.values())
    message = next((each.message for each in replies if _HOOK in each.message), None)
    if message is not None:
        yield Violation(
            sentence=f"a webhook does not answer: {message}",
            remedy="kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations; "
            f"kubectl get endpoints {endpoints}",
        )


def accepts_invalid_job(facts: Facts, check_operator_missing: Judge) -> bool:
    """True if the cluster accepted an invalid job in a dry run, unless the operator is not installed."""
    if facts.invalid_reply.stored is None:
        return False
    is_observed = not {Subject.DEPLOYMENTS, Subject.JOBS} & {*facts.unseen}
    return not (is_observed and any(check_operator_missing(facts)))
