"""Lists jobs, the objects created before them (prerequisites) and training runtimes from the API server."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, TypeVar

from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.base import JobResource
from backend_plugin.core.names import IDENTITY
from backend_plugin.core.observed import Job
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.runtimes import Runtime
from backend_plugin.core.values import Manifest
from backend_plugin.kube import json_decoder
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import JOBS, LABELLED, build_api_resource
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions, PolicyRule
from backend_plugin.shell.cluster import ClusterUnavailable

T = TypeVar("T")

_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_FOREIGN: Final = {"labelSelector": f"!{IDENTITY}"}

_Page: TypeAlias = tuple[Sequence[T], str]
"""The items of a page, and the token of the next page; the token is empty on the last page."""


class _NotPermitted(ClusterUnavailable):
    """An RBAC rule is missing."""


class _NotServed(ClusterUnavailable):
    """The cluster does not serve a resource."""


class ObjectLister:
    """Lists objects in all configured namespaces, for the methods `list_...` of `shell.cluster.Cluster`."""

    def __init__(self, api: ApiClient, permissions: Permissions, options: KubernetesOptions) -> None:
        self._api = api
        self._permissions = permissions
        self._options = options

    async def list_jobs(self) -> Sequence[Job]:
        """Return the jobs of this backend in the configured namespaces.

        Raises:
            ClusterUnavailable: If a list failed, or if the cluster serves no kind of jobs.
        """
        return await self._list_jobs(LABELLED)

    async def list_foreign_jobs(self, name: str = "") -> Sequence[Job]:
        """Return the jobs without a label of this backend; see `Cluster.list_foreign_jobs`."""
        named = {"fieldSelector": f"metadata.name={name}"} if name else {}
        try:
            return await self._list_jobs({**_FOREIGN, **named})
        except _NotServed:
            return ()

    async def list_prerequisites(self) -> Sequence[Manifest]:
        """Return the kind and metadata of each object that was created before its job and has no owner.

        Raises:
            ClusterUnavailable: If a list failed.
        """
        found: list[Manifest] = []
        for kind in [each.prerequisite for each in table.DIALECTS.values() if each.prerequisite is not None]:
            rule = PolicyRule(resource=build_api_resource(kind), verbs=("list",))
            # The API server sends only the metadata of the objects.
            request = ApiRequest(path="", query=LABELLED, accept=_METADATA)
            with suppress(_NotServed):
                listed = await self._list_all(rule, request, _decode_objects_without_owner)
                found += [{**kind.type_meta, "metadata": get_mapping(each, "metadata")} for each in listed]
        return found

    async def list_runtimes(self) -> Sequence[Runtime]:
        """Return the training runtimes; see `Cluster.list_runtimes`."""
        found: list[Runtime] = []
        for support in [each.runtimes for each in table.DIALECTS.values() if each.runtimes is not None]:
            for kind in support.kinds:
                listed = await self._list_runtimes(kind)
                found += [support.read({**each, "kind": kind.kind}) for each in listed]
        return found

    async def _list_runtimes(self, kind: JobResource) -> Sequence[Manifest]:
        rule = PolicyRule(resource=build_api_resource(kind), verbs=("list",))
        try:
            return await self._list_all(
                rule, ApiRequest(path=""), _decode_objects, namespaced=kind.namespaced
            )
        except _NotServed:
            return ()
        except _NotPermitted:
            if kind.namespaced or not self._options.namespaces:
                raise
            return ()  # A server for some namespaces may have no ClusterRole.

    async def _list_jobs(self, query: Mapping[str, str]) -> Sequence[Job]:
        found: list[Job] = []
        missing = 0
        for dialect in table.DIALECTS.values():
            parser = json_decoder.JsonDecoder(dialect.fields, dialect.read_without_pods or dialect.read)
            rule = PolicyRule(resource=JOBS[dialect.name], verbs=("list", "watch"))
            try:
                found += await self._list_all(
                    rule, ApiRequest(path="", query=query), partial(_decode_jobs, parser)
                )
            except _NotServed:  # A cluster may have the operator of only some dialects.
                missing += 1
        if missing == len(table.DIALECTS):
            operators = " or ".join(f"the {each.operator}" for each in table.DIALECTS.values())
            kinds = " or ".join(map(str, JOBS.values()))
            raise _NotServed(f"the cluster has no {kinds}; install {operators}")
        return found

    async def _list_all(
        self,
        rule: PolicyRule,
        request: ApiRequest,
        decode: "Callable[[bytes], _Page[T]]",
        *,
        namespaced: bool = True,
    ) -> Sequence[T]:
        """Return the items of all pages, from all configured namespaces or from one cluster-wide list.

        The list is cluster-wide if `namespaced` is False or no namespace is configured. The path and the page
        size are added to `request`. `decode` parses a page. If a list is forbidden, the error contains the
        RBAC rule `rule`.
        """
        found: list[T] = []
        for namespace in (self._options.namespaces if namespaced else ()) or ("",):
            query, is_last = {**request.query, "limit": str(self._options.page)}, False
            while not is_last:
                page = replace(request, path=rule.resource.build_path(namespace), query=query)
                try:
                    items, rest = await self._api.fetch_decoded(page, decode)
                except ApiError as answer:
                    raise self._convert_error(answer, replace(rule, namespace=namespace)) from answer
                found += items
                query, is_last = {**query, "continue": rest}, not rest
        return found

    def _convert_error(self, answer: ApiError, rule: PolicyRule) -> ClusterUnavailable:
        if answer.is_not_served:
            return _NotServed(f"the cluster has no {rule.resource}")
        if answer.is_not_authorized:
            return _NotPermitted(self._permissions.record_missing(rule, answer.message))
        return ClusterUnavailable(f"the API server answers {answer}")


def _decode_jobs(parser: json_decoder.JsonDecoder, body: bytes) -> "_Page[Job]":
    page = parser.decode_page(body)
    return [each.record for each in page.items if isinstance(each.record, Job)], page.rest


def _decode_objects_without_owner(body: bytes) -> "_Page[Manifest]":
    """Parse a page and drop the objects that have an owner, so that the result of all pages stays small."""
    items, rest = _decode_objects(body)
    return [each for each in items if not get_mappings(each, "metadata", "ownerReferences")], rest


def _decode_objects(body: bytes) -> "_Page[Manifest]":
    page = json_decoder.decode_object(body)
    return get_mappings(page, "items"), get_text(page, "metadata", "continue")
