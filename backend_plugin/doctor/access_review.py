"""The permissions of a connector's account or of the current user, from access reviews of the API server."""

import asyncio
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from backend_plugin.core.dialects.table import DEFAULT, DIALECTS
from backend_plugin.core.reading import NOTHING, get_mapping, get_text
from backend_plugin.core.scheduling.registry import list_schedulers
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments
from backend_plugin.doctor.cluster_reader import build_forbidden, build_permission, convert_unavailability
from backend_plugin.doctor.facts import Facts, Permission
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
from backend_plugin.kube.owners import WORKFLOWS

_JOB_VERBS: Final = ("create", "get", "list", "watch", "patch", "delete")
RULES: Final = (
    build_permission(PODS, "get", "list", "watch", "patch", "delete"),
    build_permission(PODS, "get", sub="log"),
    build_permission(EVENTS, "create", "list", "watch"),
    build_permission(POD_TEMPLATES, "get"),
    build_permission(WORKFLOWS, "get"),
)
"""The permissions that a connector needs for objects other than jobs."""


def required(facts: Facts) -> Sequence[Permission]:
    """Return the permissions that a connector needs under the settings in `facts`."""
    rules = [*_iter_job_rules(facts), *RULES]
    if facts.settings.kfpytorch.gang.needs_detection:
        # A connector that detects the gang scheduler creates pods in dry runs.
        rules.append(build_permission(PODS, "create"))
    adapter = facts.gang.adapter
    if adapter is not None and adapter.companion is not None and adapter.groups is not None:
        groups = build_api_resource(adapter.groups)
        rules.append(build_permission(groups, "create", "list", "watch", "delete"))
    return rules


def _iter_job_rules(facts: Facts) -> Iterator[Permission]:
    """Yield the connector's permissions for each kind of job that the cluster serves.

    If the cluster serves none, yield the permissions for the default kind.
    """
    groups = facts.list_api_groups()
    served = [each for each in DIALECTS.values() if each.resource.group in groups]
    for dialect in served or [DEFAULT]:
        yield build_permission(JOBS[dialect.name], *_JOB_VERBS)
        if dialect.prerequisite is not None:
            prerequisite = build_api_resource(dialect.prerequisite)
            yield build_permission(prerequisite, "create", "list", "patch", "delete")
        if dialect.ends_by_suspension:
            yield from _iter_deactivation_rules(groups)


def _iter_deactivation_rules(served: Container[str]) -> Iterator[Permission]:
    for each in list_schedulers().values():
        if each.status_parser.deactivation and each.groups is not None and each.groups.group in served:
            yield build_permission(build_api_resource(each.groups), "patch")


async def list_missing_permissions(api: ApiClient, facts: Facts) -> Mapping[str, Sequence[Permission]]:
    """Return the permissions that connectors lack, by their ServiceAccounts (``NAMESPACE/NAME``).

    Raises:
        NotReadable: If access reviews are forbidden or the API server does not answer.
    """
    rules = [replace(each, namespace=facts.namespace) for each in required(facts)]
    found = {}
    for each in deployments.list_connectors(facts):
        namespace = deployments.get_namespace(each)
        name = get_text(each, "spec", "template", "spec", "serviceAccountName") or "default"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        subject = {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
        if missing := await list_missing_rules(api, rules, subject):
            found[f"{namespace}/{name}"] = missing
    return found


async def list_missing_rules(
    api: ApiClient, rules: Sequence[Permission], subject: Manifest = NOTHING
) -> Sequence[Permission]:
    """Return the permissions in `rules` that a subject, by default the current user, lacks.

    Raises:
        NotReadable: If access reviews are forbidden or the API server does not answer.
    """

    async def list_forbidden(rule: Permission) -> Permission:
        allowed = await asyncio.gather(*(_is_allowed(api, subject, rule, verb) for verb in rule.verbs))
        forbidden = [verb for verb, can in zip(rule.verbs, allowed, strict=True) if not can]
        return replace(rule, verbs=tuple(forbidden))

    return [rule for rule in await asyncio.gather(*map(list_forbidden, rules)) if rule.verbs]


async def _is_allowed(api: ApiClient, subject: Manifest, rule: Permission, verb: str) -> bool:
    kind = "SubjectAccessReview" if subject else "SelfSubjectAccessReview"
    plural, _, subresource = rule.resource.partition("/")
    attributes = {
        "namespace": rule.namespace,
        "verb": verb,
        "group": rule.group,
        "resource": plural,
        "subresource": subresource,
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
        raise build_forbidden(answer.message, [build_permission(reviews, "create")]) from answer
