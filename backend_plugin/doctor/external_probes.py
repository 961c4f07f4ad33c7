"""Tests the access to output stores and to a connector. Sends no requests to the API server."""

import asyncio
import contextlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from backend_plugin import connection, server_selection, tls_diagnosis
from backend_plugin.core.names import TASK_TYPE
from backend_plugin.doctor.facts import Facts, ProbeResult
from backend_plugin.request_errors import RequestFailed, TokenRejected
from backend_plugin.server_address import TLS, Server
from backend_plugin.shell.output_prefixes import STORES
from backend_plugin.tls_diagnosis import Diagnosis, TlsFailure

_PODS: Final = "kubectl get services,pods -A -l app.kubernetes.io/name=kfpytorch-backend"
_DOCTOR: Final = "kfpytorch doctor --connector"
_SECONDS: Final = 20.0
_CALL: Final = 10.0
_AMAZONS: Final = frozenset({"s3", "s3a"})
_CONTENT: Final = b"kfpytorch doctor\n"
_RIGHTS: Final = (
    "give this account, and the {} ServiceAccount, {} below it; check that the bucket or directory exists"
)


async def probe_external(
    facts: Facts, prefixes: Sequence[str], connector: Server | None, *, read_only: bool = False
) -> Facts:
    """Return the facts with the results of the tests of all prefixes and the connector.

    Args:
        facts: The facts so far.
        prefixes: The output prefixes to test.
        connector: The connector to test, with the caller's credentials; None to test none.
        read_only: Only list the prefixes and read an object, and write no test object.
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
            trouble=f"cannot be tested: the package {package} is not installed",
            remedy=f"pip install {package}  # or build the image with --build-arg STORES={package}",
            is_tried=False,
        )
    if error is None:
        return ProbeResult(what=prefix)
    reason = f"{type(error).__name__}: {error}".strip().rstrip(":")
    trouble = f"cannot be {what}: {reason}"
    if isinstance(error, asyncio.TimeoutError):
        trouble = f"does not answer within {_SECONDS:g} s"
    return ProbeResult(what=prefix, trouble=trouble, remedy=_get_remedy(prefix, error, rights))


def _get_remedy(prefix: str, error: BaseException, rights: str) -> str:
    """Return the remedy for an error of the object store or directory of `prefix`, a URL.

    For S3, this is a command of the AWS CLI, which creates a missing bucket or else lists the prefix. For
    missing permissions, and for other stores, it is `rights`.
    """
    scheme, _, path = prefix.partition("://")
    if scheme not in _AMAZONS or isinstance(error, PermissionError):
        return rights
    if isinstance(error, FileNotFoundError):
        return f"aws s3 mb s3://{path.partition('/')[0]}"
    return f"aws s3 ls {prefix}  # set AWS_ENDPOINT_URL_S3=http://HOST:PORT if the store is not Amazon's"


def _open_store(prefix: str) -> tuple[Any, str, str]:
    """Return the file system and path of a prefix (a URL), and a random path below it for a test object."""
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(prefix, skip_instance_cache=True)
    if filesystem.protocol in ("file", ("file", "local")) and not filesystem.isdir(path):
        raise NotADirectoryError(f"there is no directory {path}")
    return filesystem, path, f"{path.rstrip('/')}/kfpytorch-doctor-{secrets.token_hex(8)}"


def _read_prefix(prefix: str) -> None:
    """List a prefix and read an object below it, and raise the errors of the store.

    If the prefix has no objects, read a random unused path: stores check the permission before they report
    that an object does not exist. If the bucket cannot be listed, omit this read, because stores then
    forbid it even if objects can be read.
    """
    filesystem, path, name = _open_store(prefix)
    (bucket,) = re.findall(r"^/*[^/]*", path)
    objects = _list_objects(filesystem, path, bucket)
    if not objects:
        try:
            filesystem.ls(bucket)
        except FileNotFoundError:
            raise
        except Exception:  # noqa: BLE001 - for a missing permission, each store raises another type.
            return
    with contextlib.suppress(FileNotFoundError):
        filesystem.cat_file((objects or [name])[0], start=0, end=1)


def _list_objects(filesystem: Any, path: str, bucket: str) -> Sequence[str]:
    found: list[Any] = []
    try:
        found = filesystem.ls(path, detail=True)
    except FileNotFoundError:
        if path == bucket:
            raise
    return [each["name"] for each in found if each["type"] == "file" and each["size"]]


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
    address, found = str(server.address), server
    host = address.removeprefix("grpcs://")
    how = "-plaintext" if host == address else "-insecure"
    remedy = f"kubectl get pods -A -l app.kubernetes.io/name=kfpytorch-backend; grpcurl {how} {host} list"
    try:
        found = server_selection.find_server(server)
        types = _fetch_task_types(found)
    except RequestFailed as error:
        known = None if isinstance(error, TokenRejected) else find_connection_problem(found)
        return known or ProbeResult(what=address, trouble=f"does not answer: {error}", remedy=remedy)
    if TASK_TYPE in types:
        return ProbeResult(what=address)
    trouble = f"serves no tasks of type {TASK_TYPE}; its types are {', '.join(types) or 'none'}"
    return ProbeResult(what=address, trouble=trouble, remedy=remedy)


def _fetch_task_types(server: Server) -> Sequence[str]:
    from flyteidl.admin.agent_pb2 import ListAgentsRequest
    from flyteidl.service.agent_pb2_grpc import AgentMetadataServiceStub

    with connection.open_channel(server) as (channel, metadata):
        service = AgentMetadataServiceStub(channel)
        answer = service.ListAgents(ListAgentsRequest(), timeout=_CALL, metadata=metadata)
    return sorted({each.name for agent in answer.agents for each in agent.supported_task_categories})


def find_connection_problem(server: Server) -> ProbeResult | None:
    """Return the cause after a request to a server has failed, or None if the cause cannot be determined."""
    diagnosis = tls_diagnosis.diagnose(server)
    if diagnosis is None:
        return None
    remedy = _build_connection_remedy(diagnosis, server.tls_server_name)
    return ProbeResult(what=str(server.address), trouble=diagnosis.trouble, remedy=remedy)


def _build_connection_remedy(diagnosis: Diagnosis, server_name: str) -> str:
    target = diagnosis.target
    host, _, port = target.rpartition(":")
    forward = f"kubectl port-forward -n NAMESPACE service/NAME {port}"
    take = "kubectl get secret NAME -n NAMESPACE -o 'jsonpath={.data.ca\\.crt}' | base64 -d > ca.crt"
    show = f"openssl s_client -connect {target} </dev/null | openssl x509 -noout -dates"
    with_tls = f"{_DOCTOR} {TLS}{target}"
    return {
        TlsFailure.NO_PORT: f"{_DOCTOR} {target}:8000",
        TlsFailure.UNKNOWN_HOST: f"{_PODS}  # then from outside of the cluster: {forward}",
        TlsFailure.TIMEOUT: f"{_PODS}; kubectl get networkpolicies -A",
        TlsFailure.NOT_LISTENING: _PODS,
        TlsFailure.NEEDS_TLS: f"{with_tls}  # and for Flyte insecure: false",
        TlsFailure.NO_TLS: f"{_DOCTOR} {target}  # and for Flyte insecure: true; or give the server "
        "tls.certificate and tls.key",
        TlsFailure.UNUSABLE_FILE: "name PEM files with --ca, --cert and --key; the key has to belong to the "
        "certificate",
        TlsFailure.UNTRUSTED: f"{with_tls} --ca ca.crt  # ca.crt from the server's Secret: {take}",
        TlsFailure.WRONG_NAME: f"{_DOCTOR} {TLS}{diagnosis.usable_name}:{port}  # or issue one for "
        f"{server_name or host.strip('[]')}, too",
        TlsFailure.EXPIRED: f"{show}  # issue another",
        TlsFailure.NO_CLIENT_CERTIFICATE: f"{with_tls} --cert tls.crt --key tls.key  # and --ca for its "
        "authority",
        TlsFailure.CLIENT_CERTIFICATE: "name one of the authority in the server's tls.client-ca, with --cert "
        "and --key",
    }[diagnosis.failure]
