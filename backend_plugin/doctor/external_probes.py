"""Tests the access to output stores and to a connector. Sends no requests to the API server."""

import asyncio
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from backend_plugin import connection, server_selection
from backend_plugin.core.names import TASK_TYPE
from backend_plugin.doctor.facts import Facts, ProbeResult
from backend_plugin.request_errors import RequestFailed
from backend_plugin.server_address import Server
from backend_plugin.shell.output_prefixes import STORES

_PODS: Final = "kubectl get services,pods -A -l app.kubernetes.io/name=kfpytorch-backend"
_SECONDS: Final = 20.0
_CALL: Final = 10.0
_CONTENT: Final = b"kfpytorch doctor\n"
_RIGHTS: Final = (
    "give this account, and the {} ServiceAccount, {} below it; check that the bucket or directory exists, "
    "and set AWS_ENDPOINT_URL_S3 for a store that is not Amazon's"
)


async def probe_external(
    facts: Facts, prefixes: Sequence[str], connector: Server | None, *, read_only: bool = False
) -> Facts:
    """Return the facts with the results of the tests of all output prefixes and the connector.

    `connector` contains the credentials of the caller; if it is None, no connector is tested. If `read_only`,
    list the prefixes and read an existing object, and write no test object.
    """
    stores = await asyncio.gather(*(_probe_store(each, read_only=read_only) for each in prefixes))
    found = await asyncio.to_thread(_probe_connector, connector) if connector else None
    return replace(facts, stores=stores, connector=found)


async def _probe_store(prefix: str, *, read_only: bool) -> ProbeResult:
    do, what, rights = _write_test_object, "written", _RIGHTS.format("pods'", "get, put, list and delete")
    if read_only:
        do, what, rights = _read_prefix, "read", _RIGHTS.format("servers'", "get and list")
    # The package of each store raises its own exception types.
    (error,) = await asyncio.gather(
        asyncio.wait_for(asyncio.to_thread(do, prefix), _SECONDS), return_exceptions=True
    )
    if isinstance(error, ImportError):
        scheme = prefix.partition("://")[0]
        package = STORES.get(scheme, scheme)
        return ProbeResult(
            what=prefix,
            problem=f"cannot be tested: the package {package} is not installed",
            remedy=f"pip install {package}  # or build the image with --build-arg STORES={package}",
            is_tried=False,
        )
    if error is None:
        return ProbeResult(what=prefix)
    reason = f"{type(error).__name__}: {error}".strip().rstrip(":")
    problem = f"cannot be {what}: {reason}"
    if isinstance(error, asyncio.TimeoutError):
        problem = f"does not answer within {_SECONDS:g} s"
    return ProbeResult(what=prefix, problem=problem, remedy=rights)


def _open_store(prefix: str) -> tuple[Any, str, str]:
    """Return the file system and the path of a prefix (a URL), and a random path below for a test object."""
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(prefix, skip_instance_cache=True)
    if filesystem.protocol in ("file", ("file", "local")) and not filesystem.isdir(path):
        raise NotADirectoryError(f"there is no directory {path}")
    return filesystem, path, f"{path.rstrip('/')}/kfpytorch-doctor-{secrets.token_hex(8)}"


def _read_prefix(prefix: str) -> None:
    """List a prefix and read an object below it, and raise the errors of the store."""
    filesystem, path, _ = _open_store(prefix)
    (bucket,) = re.findall(r"^/*[^/]*", path)
    try:
        found = filesystem.ls(path, detail=True)
    except FileNotFoundError:  # A prefix without objects, or a missing bucket.
        if path == bucket:
            raise
        _require_bucket(filesystem, bucket)
        return
    name = next((each["name"] for each in found if each["type"] == "file" and each["size"]), None)
    if name is not None:
        filesystem.cat_file(name, start=0, end=1)


def _require_bucket(filesystem: Any, bucket: str) -> None:
    """Raise FileNotFoundError if the bucket is missing; ignore other errors, such as a missing permission."""
    try:
        filesystem.ls(bucket)
    except FileNotFoundError:
        raise
    except Exception:  # noqa: BLE001 - for a missing permission, each store raises another type.
        return


def _write_test_object(prefix: str) -> None:
    """Write, read and delete a small object, and raise the errors of the store."""
    filesystem, _, name = _open_store(prefix)
    filesystem.pipe_file(name, _CONTENT)
    try:
        if filesystem.cat_file(name) != _CONTENT:
            raise OSError("the content that was read differs from the content that was written")
    finally:
        filesystem.rm_file(name)


def _probe_connector(server: Server) -> ProbeResult:
    address = str(server.address)
    try:
        types = _fetch_task_types(server_selection.find_server(server))
    except RequestFailed as error:
        # The messages name `--server`, the option of other commands.
        message = str(error).replace("--server ", "--connector ")
        return ProbeResult(what=address, problem=f"does not answer: {message}", remedy=_PODS)
    if TASK_TYPE in types:
        return ProbeResult(what=address)
    problem = f"serves no tasks of type {TASK_TYPE}; its types are {', '.join(types) or 'none'}"
    return ProbeResult(what=address, problem=problem, remedy=_PODS)


def _fetch_task_types(server: Server) -> Sequence[str]:
    from flyteidl.admin.agent_pb2 import ListAgentsRequest
    from flyteidl.service.agent_pb2_grpc import AgentMetadataServiceStub

    with connection.open_channel(server) as (channel, metadata):
        service = AgentMetadataServiceStub(channel)
        answer = service.ListAgents(ListAgentsRequest(), timeout=_CALL, metadata=metadata)
    return sorted({each.name for agent in answer.agents for each in agent.supported_task_categories})
