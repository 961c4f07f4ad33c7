"""Read-only requests of the doctor to an API server: lists, single objects and dry runs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec

from backend_plugin.core.errors import BackendError
from backend_plugin.core.reading import entries, section, text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import roles
from backend_plugin.doctor.facts import Permission, Reply, Unseen
from backend_plugin.doctor.looks import NAMES_ONLY, Look
from backend_plugin.kube import wire
from backend_plugin.kube.answers import Answered
from backend_plugin.kube.api import Api
from backend_plugin.kube.connection import Question
from backend_plugin.kube.kinds import Resource
from backend_plugin.kube.permissions import Rule
from backend_plugin.shell.cluster import Unavailable

_PAGE: Final = 500
_TRIAL_SECONDS: Final = 20.0
"""Timeout of a dry run. The API server waits 10 s for a webhook by default, and at most 30 s."""


class NotSeen(BackendError):
    """An object that could not be read; the message contains the reason and the remedy."""

    def __init__(self, unseen: Unseen) -> None:
        """Store the reason."""
        super().__init__(f"{unseen.reason}; {unseen.remedy}" if unseen.remedy else unseen.reason)
        self.unseen = unseen


def build_forbidden(reason: str, rules: Sequence[Rule], user: str = "") -> NotSeen:
    """Return the error for missing permissions."""
    missing = [*map(read_permission, rules)]
    remedy = roles.build_command(missing, user)
    return NotSeen(Unseen(reason=reason, remedy=remedy, rules=missing, user=user))


def read_permission(rule: Rule) -> Permission:
    """Convert a rule to the type that the checks use."""
    return Permission(
        group=rule.resource.group, resource=rule.plural, verbs=rule.verbs, namespace=rule.namespace
    )


def build_unavailable(reason: str) -> NotSeen:
    """Return the error for an API server that did not answer."""
    said, _, remedy = reason.partition("; ")
    return NotSeen(Unseen(reason=said, remedy=remedy or "kubectl get --raw '/readyz?verbose'"))


class Asking:
    """A client that reads objects of one cluster."""

    def __init__(self, api: Api, versions: Mapping[str, str]) -> None:
        """Store the API client and the preferred version of each API group."""
        self._api = api
        self._versions = versions

    async def look(self, look: Look) -> list[Manifest] | None:
        """Return the objects, or None if the cluster does not serve the kind.

        Raises:
            NotSeen: If the request is forbidden or the API server does not answer.
        """
        resource, found = look.resource, list[Manifest]()
        version = resource.version or self._versions.get(resource.group, "")
        if not version:
            return None
        for namespace in look.namespaces:
            path = resource.path(namespace, look.name, version=version)
            try:
                if look.name:
                    found.append(await self._api.object(Question(path=path, doubts=False)))
                else:
                    found += [each async for each in self._listed(path, look)]
            except Answered as answer:
                if answer.is_not_found and (look.name or not answer.is_not_served):
                    continue
                if answer.is_not_served:
                    return None
                raise self._not_seen(answer, resource, "get" if look.name else "list", namespace) from answer
            except Unavailable as trouble:
                raise build_unavailable(str(trouble)) from trouble
        return found

    async def _listed(self, path: str, look: Look) -> AsyncIterator[Manifest]:
        rest, left = "", look.most
        while True:
            query = {**look.query, "limit": str(left or _PAGE)} | ({"continue": rest} if rest else {})
            accept = NAMES_ONLY if look.names_only else "application/json"
            page = await self._api.object(Question(path=path, query=query, accept=accept, doubts=False))
            for each in entries(page, "items"):
                yield {"apiVersion": text(page, "apiVersion"), "kind": _kind(page), **each}
            rest = text(section(page, "metadata"), "continue")
            if not rest or left:
                return

    async def trial(self, resource: Resource, manifest: Manifest) -> Reply:
        """Return the reply of the API server to a dry run of a create request; nothing is stored.

        Raises:
            NotSeen: If the request is forbidden or the API server does not answer.
        """
        namespace = text(section(manifest, "metadata"), "namespace")
        question = Question(
            method="POST",
            path=resource.path(namespace),
            query={"dryRun": "All", "fieldManager": "kfpytorch", "fieldValidation": "Strict"},
            body=msgspec.json.encode(manifest, enc_hook=dict),
        )
        try:
            return Reply(stored=wire.object_of(await self._api.once(question, _TRIAL_SECONDS)))
        except Answered as answer:
            if answer.is_not_authorized:
                raise self._not_seen(answer, resource, "create", namespace) from answer
            return Reply(reason=answer.reason, message=answer.message)
        except Unavailable as trouble:
            raise build_unavailable(str(trouble)) from trouble

    @staticmethod
    def _not_seen(answer: Answered, resource: Resource, verb: str, namespace: str) -> NotSeen:
        if not answer.is_not_authorized:
            return build_unavailable(f"the API server answers {answer}")
        rule = Rule(resource=resource, verbs=(verb,), namespace=namespace)
        return build_forbidden(answer.message, [rule], roles.read_user(answer.message))


def _kind(page: Manifest) -> str:
    return text(page, "kind").removesuffix("List")
