"""The permissions of a connector's account or of the current user, from access reviews of the API server."""

import asyncio
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from backend_plugin.core.dialects.table import DEFAULT, DIALECTS
from backend_plugin.core.reading import NOTHING, get_mapping, get_text
from backend_plugin.core.scheduling.registry import list_schedulers
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.cluster_reader import build_forbidden, convert_unavailability
from backend_plugin.doctor.facts import Facts, MissingPermissions, Permission
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import (
    EVENTS,
    JOBS,
    POD_TEMPLATES,
    PODS,
    ApiResource,
    build_api_resource,
)
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.kube.permissions import PolicyRule

_WORKFLOWS: Final = ApiResource(group="flyte.lyft.com", version="v1alpha1", plural="flyteworkflows")
_JOB_VERBS: Final = ("create", "get", "list", "watch", "patch", "delete")
RULES: Final = (
    PolicyRule(resource=PODS, verbs=("get", "list", "watch", "patch", "delete")),
    PolicyRule(resource=PODS, verbs=("get",), sub="log"),
    PolicyRule(resource=EVENTS, verbs=("create", "list", "watch")),
    PolicyRule(resource=POD_TEMPLATES, verbs=("get",)),
    PolicyRule(resource=_WORKFLOWS, verbs=("get",)),
)
"""The permissions that a connector needs for objects other than jobs."""


def required(facts: Facts) -> Sequence[PolicyRule]:
    """Return the permissions that a connector needs under the settings in `facts`."""
    rules = [*_iter_job_rules(facts), *RULES]
    if facts.settings.kfpytorch.gang.needs_detection:
        # A connector that detects the gang scheduler creates pods in dry runs.
        rules.append(PolicyRule(resource=PODS, verbs=("create",)))
    adapter = facts.gang.adapter
    if adapter is not None and adapter.companion is not None and adapter.groups is not None:
        verbs = ("create", "list", "watch", "delete")
        rules.append(PolicyRule(resource=build_api_resource(adapter.groups), verbs=verbs))
    return rules


def _iter_job_rules(facts: Facts) -> Iterator[PolicyRule]:
    """Yield the permissions for the kinds of jobs that the cluster serves, or else for the default kind."""
    groups = facts.list_api_groups()
    served = [each for each in DIALECTS.values() if each.resource.group in groups]
    for dialect in served or [DEFAULT]:
        yield PolicyRule(resource=JOBS[dialect.name], verbs=_JOB_VERBS)
        if dialect.prerequisite is not None:
            verbs = ("create", "list", "patch", "delete")
            yield PolicyRule(resource=build_api_resource(dialect.prerequisite), verbs=verbs)
        if dialect.ends_by_suspension:
            yield from _iter_deactivation_rules(groups)


def _iter_deactivation_rules(served: Container[str]) -> Iterator[PolicyRule]:
    for each in list_schedulers().values():
        if each.words.deactivation and each.groups is not None and each.groups.group in served:
            yield PolicyRule(resource=build_api_resource(each.groups), verbs=("patch",))


async def list_missing_permissions(api: ApiClient, facts: Facts) -> Sequence[MissingPermissions]:
    """Return the ServiceAccounts of connectors that lack permissions, with the missing rules.

    Raises:
        NotReadable: If access reviews are forbidden or the API server does not answer.
    """
    rules = [replace(each, namespace=facts.namespace) for each in required(facts)]
    lacking = []
    for each in deployments.list_connectors(facts):
        namespace = deployments.get_namespace(each)
        name = get_text(each, "spec", "template", "spec", "serviceAccountName") or "default"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        subject = {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
        if missing := await list_missing_rules(api, rules, subject):
            lacking.append(MissingPermissions(namespace=namespace, name=name, rules=missing))
    return lacking


async def list_missing_rules(
    api: ApiClient, rules: Sequence[PolicyRule], subject: Manifest = NOTHING
) -> Sequence[Permission]:
    """Return the permissions in `rules` that a subject, by default the current user, lacks.

    Raises:
        NotReadable: If access reviews are forbidden or the API server does not answer.
    """

    async def list_forbidden(rule: PolicyRule) -> PolicyRule:
        allowed = await asyncio.gather(*(_is_allowed(api, subject, rule, verb) for verb in rule.verbs))
        forbidden = [verb for verb, can in zip(rule.verbs, allowed, strict=True) if not can]
        return replace(rule, verbs=tuple(forbidden))

    reviewed = await asyncio.gather(*map(list_forbidden, rules))
    return [read_permission(rule) for rule in reviewed if rule.verbs]


def read_permission(rule: PolicyRule) -> Permission:
    """Convert a rule to the type that the checks use."""
    return Permission(
        group=rule.resource.group, resource=rule.plural, verbs=rule.verbs, namespace=rule.namespace
    )


async def _is_allowed(api: ApiClient, subject: Manifest, rule: PolicyRule, verb: str) -> bool:
    kind = "SubjectAccessReview" if subject else "SelfSubjectAccessReview"
    attributes = {
        "namespace": rule.namespace,
        "verb": verb,
        "group": rule.resource.group,
        "resource": rule.resource.plural,
        "subresource": rule.sub,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "spec": {**subject, "resourceAttributes": attributes},
    }
    reviews = ApiResource(group="authorization.k8s.io", version="v1", plural=f"{kind.lower()}s")
    request = ApiRequest(
        method="POST", path=reviews.build_path(""), body=msgspec.json.encode(review), doubts=False
    )
    try:
        with convert_unavailability():
            return get_mapping(await api.fetch_object(request), "status").get("allowed") is True
    except ApiError as answer:
        needed = Permission(group=reviews.group, resource=reviews.plural, verbs=("create",))
        raise build_forbidden(answer.message, [needed]) from answer
