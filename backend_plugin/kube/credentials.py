"""Reads the address of the API server and the credentials with the official package `kubernetes`."""

import ast
import asyncio
import contextlib
import logging
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import psutil

from backend_plugin.core.errors import BackendError
from backend_plugin.core.reading import get_mapping, get_text, get_texts
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.shell import bounded_read

_SECONDS: Final = 30.0
"""The timeout for reading a kubeconfig. An exec plugin may wait for user input and may hang."""
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOADER_LOG: Final = logging.getLogger("kubernetes.aio.config.kube_config")


class CredentialsUnusable(BackendError):
    """Raised if no credentials for the cluster are configured, or if they cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The address and the credentials of an API server at one moment."""

    server: str
    """The URL. It may contain a path, as behind Rancher."""
    authorization: str = ""
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    server_name: str | None = None
    """The name that the server's certificate must match, if it differs from the host of the URL."""
    proxy: str | None = None


class InClusterCredentials:
    """The service account of the current pod. Its token is renewed every hour."""

    def __init__(self, account: Path = _ACCOUNT, environ: Mapping[str, str] = os.environ) -> None:
        self._account = account
        self._environ = environ

    async def load(self) -> ClusterAccess:
        """Read the token and the CA file.

        Raises:
            CredentialsUnusable: If they cannot be read.
        """
        from kubernetes.aio.client import Configuration
        from kubernetes.aio.config import ConfigException
        from kubernetes.aio.config.incluster_config import InClusterConfigLoader

        configuration = Configuration()
        loader: Any = InClusterConfigLoader
        try:
            loader(
                token_filename=str(self._account / "token"),
                cert_filename=str(self._account / "ca.crt"),
                environ=self._environ,
            ).load_and_set(configuration)
        except (ConfigException, OSError, ValueError) as error:
            raise CredentialsUnusable(
                f"{self._account}: {error}; run in a pod with a service account"
            ) from error
        return _build_access(configuration)

    def forget(self) -> None:
        """Do nothing, because nothing is cached."""


class KubeconfigCredentials:
    """A context of kubeconfig files, including its certificates, tokens and exec plugins."""

    def __init__(self, files: str, context: str = "", seconds: float = _SECONDS) -> None:
        self._files = files
        self._context = context
        self._seconds = seconds
        self._loader: Any = None
        self._file_states: object = None

    async def load(self) -> ClusterAccess:
        """Return the current credentials. An exec plugin runs again when its token has expired.

        Raises:
            CredentialsUnusable: If there are no usable credentials, or if the plugin does not end within the
                timeout; it is then killed together with the processes that it started.
        """
        existing = {process.pid for process in _list_children()}
        loading = asyncio.create_task(self._load_context())
        try:
            await asyncio.wait([loading], timeout=self._seconds)
            if loading.done():
                return loading.result()
        finally:
            if not loading.done():
                # The official package does not end the plugin. Kill its processes before the cancellation:
                # asyncio kills a plugin that is just starting, and its children then have another parent.
                for process in _list_children():
                    if process.pid not in existing:
                        with contextlib.suppress(psutil.Error):
                            process.kill()
                loading.cancel()
                await asyncio.wait([loading])
        raise CredentialsUnusable(
            f"kubeconfig {self._files}: its exec plugin returned no credentials within {self._seconds:g} s; "
            "run the plugin by hand to find out what it waits for"
        )

    async def _load_context(self) -> ClusterAccess:
        from kubernetes.aio.client import Configuration
        from kubernetes.aio.config.kube_config import load_kube_config

        load: Any = load_kube_config
        configuration = Configuration()
        paths = [Path(each).expanduser() for each in self._files.split(os.pathsep) if each]
        file_states = [*filter(None, map(bounded_read.read_file_state, paths))]
        if not file_states:
            raise CredentialsUnusable(
                f"kubeconfig {self._files}: there is no such file; name a kubeconfig that kubectl can use"
            )
        is_loaded = self._loader is not None and file_states == self._file_states
        loading = (
            self._loader.load_and_set(configuration)
            if is_loaded
            else load(
                config_file=self._files,
                context=self._context or None,
                client_configuration=configuration,
                persist_config=False,
            )
        )
        # The package evaluates user input and the output of plugins, so any exception is possible.
        loader: Any
        with _collect_plugin_errors() as plugin_errors:
            (loader,) = await asyncio.gather(loading, return_exceptions=True)
        if isinstance(loader, Exception):
            is_malformed = isinstance(loader, AttributeError | LookupError | TypeError)
            what = "is not a valid kubeconfig" if is_malformed else _format_load_error(loader)
            raise CredentialsUnusable(
                f"kubeconfig {self._files}: {what}; "
                "name a kubeconfig and a context that `kubectl config get-contexts` prints"
            ) from loader
        if not is_loaded:
            self._loader, self._file_states = loader, file_states
        if plugin_errors:
            raise CredentialsUnusable(
                f"kubeconfig {self._files}: {_format_plugin_error(self._loader, plugin_errors[-1])}"
            )
        return _build_access(configuration)

    def forget(self) -> None:
        """Discard the output of an exec plugin, even if it has not expired."""
        self._loader = None


Credentials: TypeAlias = InClusterCredentials | KubeconfigCredentials
"""A source of credentials. Load them repeatedly: tokens expire and certificates are renewed."""


def select_credentials(options: KubernetesOptions, environ: Mapping[str, str] = os.environ) -> Credentials:
    """Return the credentials from the options, else the pod's service account, else kubectl's default."""
    if not options.kubeconfig and not options.context and environ.get("KUBERNETES_SERVICE_HOST"):
        return InClusterCredentials(environ=environ)
    files = options.kubeconfig or environ.get("KUBECONFIG", "") or str(Path.home() / ".kube" / "config")
    return KubeconfigCredentials(files, options.context)


def _list_children() -> "Sequence[psutil.Process]":
    return psutil.Process().children(recursive=True)


@contextlib.contextmanager
def _collect_plugin_errors() -> Iterator[Sequence[str]]:
    """Yield a list that receives the errors of exec plugins, which the official package only logs.

    After such an error, the package continues without credentials, and the cluster sees an anonymous user.
    """
    errors: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: errors.append(record.getMessage())  # type: ignore[method-assign]
    propagate, _LOADER_LOG.propagate = _LOADER_LOG.propagate, False
    _LOADER_LOG.addHandler(handler)
    try:
        yield errors
    finally:
        _LOADER_LOG.removeHandler(handler)
        _LOADER_LOG.propagate = propagate


def _format_plugin_error(loader: Any, error: str) -> str:
    plugin = get_mapping(loader._user.value, "exec")  # noqa: SLF001 - the package has no public access to it.
    command = shlex.join([get_text(plugin, "command"), *get_texts(plugin, "args")])
    text, dot, output = error.partition(". b")
    if output[:1] in ("'", '"') and output[1:].endswith(output[0]):  # stderr, as Python writes bytes.
        error = f"{text}{dot[:-1]}{ast.literal_eval('b' + output).decode(errors='replace')}"
    return f"its exec plugin `{command}` failed: {error}; run the plugin by hand, or log in again"


def _format_load_error(error: Exception) -> str:
    """Return the text of an error of the official package.

    Replace the text if a context is missing, because the package then calls the file invalid.
    """
    text = str(error)
    # "Expected object with name CONTEXT in FILE/contexts list"
    context, _, place = text.partition("Expected object with name ")[2].partition(" in ")
    return f"has no context {context}" if place.endswith("/contexts list") else text


def _build_access(configuration: Any) -> ClusterAccess:
    return ClusterAccess(
        server=configuration.host.rstrip("/"),
        # The token file may end with a line break.
        authorization=configuration.api_key.get("BearerToken", "").strip(),
        ca_file=configuration.ssl_ca_cert,
        cert_file=configuration.cert_file,
        key_file=configuration.key_file,
        verify=configuration.verify_ssl,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
    )
