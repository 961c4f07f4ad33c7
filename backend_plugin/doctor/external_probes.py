"""Tests the access to output stores and to a connector, without the API server."""

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from backend_plugin import connection
from backend_plugin.connection import Server
from backend_plugin.core.names import TASK_TYPE
from backend_plugin.doctor import connectivity
from backend_plugin.doctor.facts import Facts, ProbeResult
from backend_plugin.shell.output_prefixes import STORES

_SECONDS: Final = 20.0
_CALL: Final = 10.0
_AMAZONS: Final = frozenset({"s3", "s3a"})
_CONTENT: Final = b"kfpytorch doctor\n"
_WRITABLE: Final = (
    "give this account, and the pods' ServiceAccount, get, put, list and delete below it; check that "
    "the bucket or directory exists"
)
_READABLE: Final = (
    "give this account, and the servers' ServiceAccount, get and list below it; check that the bucket or "
    "directory exists"
)


async def probe_external(
    facts: Facts, prefixes: Sequence[str], connector: Server | None, *, read_only: bool = False
) -> Facts:
    """Return the facts with the results of the tests of all prefixes and the connector.

    Args:
        facts: The facts so far.
        prefixes: The output prefixes to test.
        connector: The connector and the caller's credentials; None if none is tested.
        read_only: Only list the prefixes, because a server does not write to stores.
    """
    stores = await asyncio.gather(*(_probe_store(each, read_only=read_only) for each in prefixes))
    found = await asyncio.to_thread(_probe_connector, connector) if connector else None
    return replace(facts, stores=stores, connector=found)


async def _probe_store(prefix: str, *, read_only: bool) -> ProbeResult:
    scheme = prefix.partition("://")[0]
    do, what, rights = (
        (_list_prefix, "read", _READABLE) if read_only else (_write_test_object, "written", _WRITABLE)
    )
    # The package of each store raises its own exception types.
    (error,) = await asyncio.gather(
        asyncio.wait_for(asyncio.to_thread(do, prefix), _SECONDS), return_exceptions=True
    )
    if isinstance(error, ImportError):
        package = STORES.get(scheme, scheme)
        return ProbeResult(
            what=prefix,
            trouble=f"cannot be tested: the package {package} is not installed",
            remedy=f"pip install {package}  # or build the image with --build-arg STORES={package}",
            is_tried=False,
        )
    if isinstance(error, asyncio.TimeoutError):
        trouble = f"does not answer within {_SECONDS:g} s"
        return ProbeResult(what=prefix, trouble=trouble, remedy=_get_remedy(prefix, error, rights))
    if error is not None:
        reason = f"{type(error).__name__}: {error}".strip().rstrip(":")
        trouble = f"cannot be {what}: {reason}"
        return ProbeResult(what=prefix, trouble=trouble, remedy=_get_remedy(prefix, error, rights))
    return ProbeResult(what=prefix)


def _get_remedy(prefix: str, error: BaseException, rights: str) -> str:
    """Return the remedy; S3 has its own commands for missing buckets and wrong endpoints."""
    scheme, _, path = prefix.partition("://")
    if scheme not in _AMAZONS or isinstance(error, PermissionError):
        return rights
    if isinstance(error, FileNotFoundError):
        return f"aws s3 mb s3://{path.partition('/')[0]}"
    return f"aws s3 ls {prefix}  # set AWS_ENDPOINT_URL_S3=http://HOST:PORT if the store is not Amazon's"


def _list_prefix(prefix: str) -> None:
    """List a prefix, and raise the errors of the store. An object store prefix without objects is valid."""
    import fsspec

    filesystem: Any
    filesystem, path = fsspec.core.url_to_fs(prefix, skip_instance_cache=True)
    bucket, _, below = path.strip("/").partition("/")
    try:
        filesystem.ls(path)
    except FileNotFoundError:
        if not below or filesystem.protocol in ("file", ("file", "local")):
            raise
        with contextlib.suppress(PermissionError):  # Listing the whole bucket may be forbidden.
            filesystem.ls(bucket)


def _write_test_object(prefix: str) -> None:
    """Write, read and delete a small object, and raise the errors of the store."""
    import fsspec

    filesystem: Any
    filesystem, path = fsspec.core.url_to_fs(prefix, skip_instance_cache=True)
    if filesystem.protocol in ("file", ("file", "local")) and not filesystem.isdir(path):
        raise NotADirectoryError(f"there is no directory {path}")
    name = f"{path.rstrip('/')}/kfpytorch-doctor-{secrets.token_hex(8)}"
    filesystem.pipe_file(name, _CONTENT)
    try:
        if filesystem.cat_file(name) != _CONTENT:
            raise OSError("the content that was read differs from the content that was written")
    finally:
        filesystem.rm_file(name)


def _probe_connector(server: Server) -> ProbeResult:
    """Test that the connector answers and serves the task type of this project."""
    from flyteidl.admin.agent_pb2 import ListAgentsRequest, ListAgentsResponse

    address = str(server.address)
    host = address.removeprefix("grpcs://")
    how = "-plaintext" if host == address else "-insecure"
    remedy = f"kubectl get pods -A -l app.kubernetes.io/name=kfpytorch-backend; grpcurl {how} {host} list"
    found = server
    try:
        found = connection.find_server(server)
        with connection.open_channel(found) as (channel, metadata):
            ask = channel.unary_unary(
                "/flyteidl.service.AgentMetadataService/ListAgents",
                request_serializer=ListAgentsRequest.SerializeToString,
                response_deserializer=ListAgentsResponse.FromString,
            )
            answer = ask(ListAgentsRequest(), timeout=_CALL, metadata=metadata)
    except connection.RequestFailed as error:
        known = None if isinstance(error, connection.TokenRejected) else connectivity.find_problem(found)
        return known or ProbeResult(what=address, trouble=f"does not answer: {error}", remedy=remedy)
    types = {each.name for agent in answer.agents for each in agent.supported_task_categories}
    if TASK_TYPE not in types:
        names = ", ".join(sorted(types)) or "none"
        return ProbeResult(
            what=address, trouble=f"serves no tasks of type {TASK_TYPE}; its types are {names}", remedy=remedy
        )
    return ProbeResult(what=address)
