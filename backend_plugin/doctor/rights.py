"""The permissions of a connector's account or of the current user, from access reviews of the API server."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from backend_plugin.core.reading import section, text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import deployments, roles
from backend_plugin.doctor.asking import build_forbidden, build_unavailable, read_permission
from backend_plugin.doctor.facts import Facts, Lacking
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.api import Api
from backend_plugin.kube.connection import Question
from backend_plugin.kube.kinds import EVENTS, JOBS, POD_TEMPLATES, PODS, Resource
from backend_plugin.kube.permissions import Rule
from backend_plugin.shell.cluster import Unavailable

_WORKFLOWS: Final = Resource(group="flyte.lyft.com", version="v1alpha1", plural="flyteworkflows")
RULES: Final = (
    Rule(resource=JOBS, verbs=("create", "get", "list", "watch", "patch", "delete")),
    Rule(resource=PODS, verbs=("list", "watch", "delete")),
    Rule(resource=PODS, verbs=("get",), sub="log"),
    Rule(resource=EVENTS, verbs=("create", "list", "watch")),
    Rule(resource=POD_TEMPLATES, verbs=("get",)),
    Rule(resource=_WORKFLOWS, verbs=("get",)),
)
"""The permissions that a connector needs to run tasks and to report why they fail."""
_DRY_RUN: Final = Rule(resource=PODS, verbs=("create",))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    """A ServiceAccount; without a name, the current user."""

    namespace: str = ""
    name: str = ""

    @property
    def kind(self) -> str:
        """Return the kind of the access review."""
        return "SubjectAccessReview" if self.name else "SelfSubjectAccessReview"

    @property
    def subject(self) -> Manifest:
        """Return the user and groups of the account, as the access review requires them."""
        if not self.name:
            return {}
        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{self.namespace}",
            "system:authenticated",
        )
        return {"user": f"system:serviceaccount:{self.namespace}:{self.name}", "groups": groups}


def required(facts: Facts) -> Sequence[Rule]:
    """Return the permissions that a connector needs with the settings."""
    # A connector that detects the gang scheduler creates pods in dry runs.
    dry_runs = (_DRY_RUN,) if facts.settings.kfpytorch.gang.is_found else ()
    return (*RULES, *dry_runs, *_of_groups(facts))


async def lacking(api: Api, facts: Facts) -> Sequence[Lacking]:
    """Return the ServiceAccounts of connectors that lack permissions, with the missing rules.

    Raises:
        NotSeen: If access reviews are forbidden or the API server does not answer.
    """
    accounts = [
        _Account(
            namespace=deployments.namespace(each),
            name=text(section(each, "spec", "template", "spec"), "serviceAccountName") or "default",
        )
        for each in deployments.connectors(facts)
    ]
    rules = [replace(each, namespace=facts.namespace) for each in required(facts)]
    found = [(account, await _missing(api, account, rules)) for account in accounts]
    return [
        Lacking(namespace=account.namespace, name=account.name, rules=[*map(read_permission, missing)])
        for account, missing in found
        if missing
    ]


async def own(api: Api, rules: Sequence[Rule]) -> Sequence[Rule]:
    """Return the rules that the current user lacks.

    Raises:
        NotSeen: If the API server does not answer.
    """
    return await _missing(api, _Account(), rules)


def _of_groups(facts: Facts) -> Sequence[Rule]:
    """Return the rules for the companion objects that the connector creates."""
    adapter = facts.gang.adapter
    if adapter is None or adapter.makes is None:
        return ()
    group, _, version = adapter.makes[0].partition("/")
    resource = Resource(group=group, version=version, plural=f"{adapter.makes[1].lower()}s")
    return (Rule(resource=resource, verbs=("create", "list", "watch", "delete")),)


async def _missing(api: Api, account: _Account, rules: Sequence[Rule]) -> Sequence[Rule]:
    """Return each rule with a forbidden verb, reduced to its forbidden verbs."""
    asked = [(rule, verb) for rule in rules for verb in rule.verbs]
    allowed = await asyncio.gather(*(_allowed(api, account, rule, verb) for rule, verb in asked))
    missing: dict[Rule, list[str]] = {}
    for (rule, verb), may in zip(asked, allowed, strict=True):
        if not may:
            missing.setdefault(rule, []).append(verb)
    return [replace(rule, verbs=tuple(verbs)) for rule, verbs in missing.items()]


async def _allowed(api: Api, account: _Account, rule: Rule, verb: str) -> bool:
    asked = {
        "namespace": rule.namespace,
        "verb": verb,
        "group": rule.resource.group,
        "resource": rule.resource.plural,
        "subresource": rule.sub,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": account.kind,
        "spec": {**account.subject, "resourceAttributes": asked},
    }
    reviews = Resource(group="authorization.k8s.io", version="v1", plural=f"{account.kind.lower()}s")
    question = Question(method="POST", path=reviews.path(""), body=msgspec.json.encode(review), doubts=False)
    try:
        return section(await api.object(question), "status").get("allowed") is True
    except Answered as answer:
        needed = Rule(resource=reviews, verbs=("create",))
        raise build_forbidden(answer.message, [needed], roles.read_user(answer.message)) from answer
    except Unavailable as trouble:
        raise build_unavailable(str(trouble)) from trouble
