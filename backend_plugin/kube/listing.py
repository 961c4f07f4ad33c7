"""Lists all jobs of this backend, and their prerequisites, from the API server."""

import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Final

from backend_plugin.core.dialects import table
from backend_plugin.core.dialects.base import Dialect
from backend_plugin.core.observed import Job
from backend_plugin.core.reading import get_mapping, get_mappings, get_text
from backend_plugin.core.values import Manifest
from backend_plugin.kube import json_decoder
from backend_plugin.kube.api_client import ApiClient
from backend_plugin.kube.api_errors import ApiError
from backend_plugin.kube.api_resources import JOBS, LABELLED, build_api_resource
from backend_plugin.kube.connection import ApiRequest
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions, PolicyRule
from backend_plugin.shell.cluster import ClusterUnavailable

_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


async def list_jobs(api: ApiClient, permissions: Permissions, options: KubernetesOptions) -> Sequence[Job]:
    """Return the jobs in all configured namespaces.

    Raises:
        ClusterUnavailable: If a list failed.
    """
    found: list[Job] = []
    places = [*itertools.product(table.DIALECTS.values(), options.namespaces or ("",))]
    missing: list[ApiError] = []
    for dialect, namespace in places:
        rule = PolicyRule(resource=JOBS[dialect.name], verbs=("list", "watch"), namespace=namespace)
        try:
            found += [job async for job in _iter_jobs(api, dialect, namespace, options.page)]
        except ApiError as answer:
            # A cluster may have the operator of only some dialects.
            if answer.is_not_served:
                missing.append(answer)
                continue
            if answer.is_not_authorized:
                raise ClusterUnavailable(permissions.record_missing(rule, answer.message)) from answer
            raise ClusterUnavailable(f"the API server answers {answer}") from answer
    if len(missing) == len(places):
        raise ClusterUnavailable(f"the API server answers {missing[0]}") from missing[0]
    return found


async def list_prerequisites(
    api: ApiClient, permissions: Permissions, options: KubernetesOptions
) -> Sequence[Manifest]:
    """Return the kinds and metadata of the prerequisites of jobs; none of kinds that are not served.

    Raises:
        ClusterUnavailable: If a list failed.
    """
    found: list[Manifest] = []
    kinds = [each.prerequisite for each in table.DIALECTS.values() if each.prerequisite is not None]
    for kind, namespace in itertools.product(kinds, options.namespaces or ("",)):
        resource = build_api_resource(kind)
        rule = PolicyRule(resource=resource, verbs=("list",), namespace=namespace)
        try:
            listed = [
                each async for each in _iter_metadata(api, resource.build_path(namespace), options.page)
            ]
        except ApiError as answer:
            if answer.is_not_served:
                continue
            if answer.is_not_authorized:
                raise ClusterUnavailable(permissions.record_missing(rule, answer.message)) from answer
            raise ClusterUnavailable(f"the API server answers {answer}") from answer
        found += [{"apiVersion": kind.api_version, "kind": kind.kind, "metadata": each} for each in listed]
    return found


async def _iter_metadata(api: ApiClient, path: str, limit: int) -> AsyncIterator[Manifest]:
    """Yield the metadata of our objects, which the API server sends without the rest of the objects."""
    rest = ""
    while True:
        query = {**LABELLED, "limit": str(limit)} | ({"continue": rest} if rest else {})
        page = await api.fetch_object(ApiRequest(path=path, query=query, accept=_METADATA))
        for each in get_mappings(page, "items"):
            yield get_mapping(each, "metadata")
        rest = get_text(page, "metadata", "continue")
        if not rest:
            return


async def _iter_jobs(api: ApiClient, dialect: Dialect, namespace: str, limit: int) -> AsyncIterator[Job]:
    parser, rest = json_decoder.JsonDecoder(dialect.fields, dialect.read), ""
    while True:
        query = {**LABELLED, "limit": str(limit)} | ({"continue": rest} if rest else {})
        page = await api.fetch_decoded(
            ApiRequest(path=JOBS[dialect.name].build_path(namespace), query=query), parser.decode_page
        )
        for each in page.items:
            if isinstance(each.record, Job):
                yield each.record
        rest = page.rest
        if not rest:
            return
