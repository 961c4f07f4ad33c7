"""Read-only requests of the doctor to an API server: lists, single objects and dry runs."""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import msgspec

from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.reading import get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.doctor import kubectl_commands
from backend_plugin.doctor.facts import DryRunReply, NotReadable, Permission
from backend_plugin.doctor.queries import Query
from backend_plugin.kube import credentials, json_decoder
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import ApiResource, get_resource
from backend_plugin.kube.connection import ApiRequest, Connection
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.shell.cluster import ClusterUnavailable

_USER: Final = re.compile(r'User "([\w.:@/+=#-]+)" cannot')
_PAGE: Final = 500
_TRIAL_SECONDS: Final = 20.0
"""Timeout of a dry run. The API server waits 10 s for a webhook by default, and at most 30 s."""


def build_permission(resource: ApiResource, *verbs: str, sub: str = "", namespace: str = "") -> Permission:
    """Return the permission for a resource, or for its subresource `sub`, such as ``log`` of pods."""
    plural = f"{resource.plural}/{sub}" if sub else resource.plural
    return Permission(group=resource.group, resource=plural, verbs=verbs, namespace=namespace)


def build_forbidden(reason: str, rules: Sequence[Permission]) -> NotReadable:
    """Return the error for missing permissions, with a command that grants them.

    The command binds the permissions to a user if `reason` names one, as messages of the API server do.
    """
    found = _USER.search(reason)
    user = found[1] if found else ""
    return NotReadable(reason, kubectl_commands.build_grant_command(rules, user), rules, user)


@contextmanager
def convert_unavailability() -> Iterator[None]:
    """Convert `ClusterUnavailable`, the error of an API server that does not answer, to `NotReadable`."""
    try:
        yield
    except ClusterUnavailable as error:
        raise _build_unavailable(str(error)) from error


def _build_unavailable(reason: str) -> NotReadable:
    message, _, remedy = reason.partition("; ")
    return NotReadable(message, remedy or "kubectl get --raw '/readyz?verbose'")


@asynccontextmanager
async def open_connection(options: KubernetesOptions) -> AsyncIterator[tuple[Connection, ApiClient]]:
    """Yield a connection to the cluster, and an API client that uses it.

    Raises:
        CredentialsUnusable: If there are no usable credentials.
    """
    connection = Connection(credentials.select_credentials(options))
    try:
        await connection.open()
        yield connection, ApiClient(connection, options.request_timeout)
    finally:
        await connection.close()


class ClusterReader:
    """A client that reads objects of one cluster."""

    def __init__(self, api: ApiClient, groups: Sequence[Manifest] = ()) -> None:
        """Store the API client and the API groups of the cluster, as API discovery returns them.

        The groups determine the version of a resource whose `ApiResource.version` is empty. Without groups,
        such a resource is not read.
        """
        self._api = api
        self._versions = {
            get_text(each, "name"): get_text(each, "preferredVersion", "version") for each in groups
        }

    async def read_objects(self, look: Query) -> list[Manifest] | None:
        """Return the objects that the query `look` requests; None if the cluster does not serve their kind.

        Raises:
            NotReadable: If the request is forbidden or the API server does not answer.
        """
        # A request for a kind that is not served fails with 403 if the user has no permission for it.
        group = look.resource.group
        is_absent = group and self._versions and group not in self._versions
        version = "" if is_absent else look.resource.version or self._versions.get(group, "")
        if not version:
            return None
        path = look.resource.build_path(look.namespace, look.name, version=version)
        try:
            with convert_unavailability():
                return [each async for each in self._iter_objects(path, look)]
        except ApiError as answer:
            if answer.is_not_found and look.name:
                return []
            if answer.is_not_served:
                return None
            raise _build_error(answer, look.resource, look.verb, look.namespace) from answer

    async def _iter_objects(self, path: str, look: Query) -> AsyncIterator[Manifest]:
        if look.name:
            yield await self._api.fetch_object(ApiRequest(path=path, doubts=False))
            return
        query, is_last = {**look.query, "limit": str(look.most or _PAGE)}, False
        while not is_last:
            request = ApiRequest(path=path, query=query, accept=look.accept, doubts=False)
            page = await self._api.fetch_object(request)
            kind = get_text(page, "kind").removesuffix("List")
            for each in get_mappings(page, "items"):
                yield {"apiVersion": get_text(page, "apiVersion"), "kind": kind, **each}
            rest = get_text(page, "metadata", "continue")
            query, is_last = {**query, "continue": rest}, bool(look.most) or not rest

    async def dry_run_create(self, manifest: Manifest, dialect: Dialect) -> DryRunReply:
        """Return the reply of the API server to a dry run of a create request; nothing is stored.

        Webhooks of the operator and of Kueue cannot find a job's prerequisites, because the dry runs of the
        prerequisites store nothing. If a webhook rejects a job of `dialect` (kind of job) for this reason,
        return a reply that accepts the job.

        Raises:
            NotReadable: If the request is forbidden or the API server does not answer.
        """
        resource, namespace = get_resource(manifest), get_text(manifest, "metadata", "namespace")
        request = ApiRequest(
            method="POST",
            path=resource.build_path(namespace),
            query={"dryRun": "All", "fieldManager": "kfpytorch", "fieldValidation": "Strict"},
            body=msgspec.json.encode(manifest, enc_hook=dict),
        )
        try:
            with convert_unavailability():
                stored = json_decoder.decode_object(await self._api.send_once(request, _TRIAL_SECONDS))
        except ApiError as answer:
            if answer.is_not_authorized:
                raise _build_error(answer, resource, "create", namespace) from answer
            if dialect.is_premature(answer.message):
                return DryRunReply(stored=manifest)
            return DryRunReply(reason=answer.reason, message=answer.message)
        return DryRunReply(stored=stored)


def _build_error(answer: ApiError, resource: ApiResource, verb: str, namespace: str) -> NotReadable:
    if not answer.is_not_authorized:
        return _build_unavailable(f"the API server answers {answer}")
    return build_forbidden(answer.message, [build_permission(resource, verb, namespace=namespace)])
