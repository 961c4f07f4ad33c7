"""Read-only requests of the doctor to an API server: lists, single objects and dry runs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec

from backend_plugin.core.errors import BackendError
from backend_plugin.core.reading import get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import rbac_commands
from backend_plugin.doctor.facts import DryRunReply, Permission, ReadFailure
from backend_plugin.doctor.queries import NAMES_ONLY, Query
from backend_plugin.kube import json_decoder
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import ApiResource
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.kube.permissions import PolicyRule
from backend_plugin.shell.cluster import ClusterUnavailable

_PAGE: Final = 500
_TRIAL_SECONDS: Final = 20.0
"""Timeout of a dry run. The API server waits 10 s for a webhook by default, and at most 30 s."""


class NotReadable(BackendError):
    """An object that could not be read; the message contains the reason and the remedy."""

    def __init__(self, unseen: ReadFailure) -> None:
        """Store the reason."""
        super().__init__(f"{unseen.reason}; {unseen.remedy}" if unseen.remedy else unseen.reason)
        self.unseen = unseen


def build_forbidden(reason: str, rules: Sequence[PolicyRule], user: str = "") -> NotReadable:
    """Return the error for missing permissions."""
    missing = [*map(read_permission, rules)]
    remedy = rbac_commands.build_command(missing, user)
    return NotReadable(ReadFailure(reason=reason, remedy=remedy, rules=missing, user=user))


def read_permission(rule: PolicyRule) -> Permission:
    """Convert a rule to the type that the checks use."""
    return Permission(
        group=rule.resource.group, resource=rule.plural, verbs=rule.verbs, namespace=rule.namespace
    )


def build_unavailable(reason: str) -> NotReadable:
    """Return the error for an API server that did not answer."""
    message, _, remedy = reason.partition("; ")
    return NotReadable(ReadFailure(reason=message, remedy=remedy or "kubectl get --raw '/readyz?verbose'"))


class ClusterReader:
    """A client that reads objects of one cluster."""

    def __init__(self, api: ApiClient, versions: Mapping[str, str]) -> None:
        """Store the API client and the preferred version of each API group."""
        self._api = api
        self._versions = versions

    async def read_objects(self, look: Query) -> list[Manifest] | None:
        """Return the objects, or None if the cluster does not serve the kind.

        Raises:
            NotReadable: If the request is forbidden or the API server does not answer.
        """
        resource, objects = look.resource, list[Manifest]()
        version = resource.version or self._versions.get(resource.group, "")
        # A request without permission for a kind that the cluster does not serve would be forbidden.
        if not version or (resource.group and self._versions and resource.group not in self._versions):
            return None
        for namespace in look.namespaces:
            path = resource.build_path(namespace, look.name, version=version)
            try:
                if look.name:
                    objects.append(await self._api.fetch_object(ApiRequest(path=path, doubts=False)))
                else:
                    objects += [each async for each in self._iter_pages(path, look)]
            except ApiError as answer:
                if answer.is_not_found and (look.name or not answer.is_not_served):
                    continue
                if answer.is_not_served:
                    return None
                raise self._build_error(
                    answer, resource, "get" if look.name else "list", namespace
                ) from answer
            except ClusterUnavailable as trouble:
                raise build_unavailable(str(trouble)) from trouble
        return objects

    async def _iter_pages(self, path: str, look: Query) -> AsyncIterator[Manifest]:
        rest, left = "", look.most
        while True:
            query = {**look.query, "limit": str(left or _PAGE)} | ({"continue": rest} if rest else {})
            accept = NAMES_ONLY if look.names_only else "application/json"
            page = await self._api.fetch_object(
                ApiRequest(path=path, query=query, accept=accept, doubts=False)
            )
            kind = get_text(page, "kind").removesuffix("List")
            for each in get_mappings(page, "items"):
                yield {"apiVersion": get_text(page, "apiVersion"), "kind": kind, **each}
            rest = get_text(page, "metadata", "continue")
            if not rest or left:
                return

    async def dry_run_create(self, resource: ApiResource, manifest: Manifest) -> DryRunReply:
        """Return the reply of the API server to a dry run of a create request; nothing is stored.

        Raises:
            NotReadable: If the request is forbidden or the API server does not answer.
        """
        namespace = get_text(manifest, "metadata", "namespace")
        question = ApiRequest(
            method="POST",
            path=resource.build_path(namespace),
            query={"dryRun": "All", "fieldManager": "kfpytorch", "fieldValidation": "Strict"},
            body=msgspec.json.encode(manifest, enc_hook=dict),
        )
        try:
            return DryRunReply(
                stored=json_decoder.decode_object(await self._api.send_once(question, _TRIAL_SECONDS))
            )
        except ApiError as answer:
            if answer.is_not_authorized:
                raise self._build_error(answer, resource, "create", namespace) from answer
            return DryRunReply(reason=answer.reason, message=answer.message)
        except ClusterUnavailable as trouble:
            raise build_unavailable(str(trouble)) from trouble

    @staticmethod
    def _build_error(answer: ApiError, resource: ApiResource, verb: str, namespace: str) -> NotReadable:
        if not answer.is_not_authorized:
            return build_unavailable(f"the API server answers {answer}")
        rule = PolicyRule(resource=resource, verbs=(verb,), namespace=namespace)
        return build_forbidden(answer.message, [rule], rbac_commands.read_user(answer.message))
