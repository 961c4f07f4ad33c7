"""``kfpytorch serve``: the server that FlytePropeller calls."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import rich_click as click

from backend_plugin.cli import cluster_options, command_errors, command_io, serve_check, serve_settings
from backend_plugin.cli.serve_settings import Configuration

_LOG: Final = logging.getLogger("kfpytorch")

_HELP: Final = """Run the server, which is the gRPC connector that FlytePropeller calls.

With the embedded cluster, jobs run as processes of this machine. The server then listens on loopback only,
and the other commands find it without options. Each setting can be in the file, below `server`, or in an
environment variable (KFPYTORCH_PORT). Options take precedence over variables, and variables over the file.

\b
  $ kfpytorch serve
  $ kfpytorch serve --settings flyte.yaml --check
"""


_OPTIONS: Final = (
    ("--cluster", "KIND", "Where jobs run: embedded (processes of this machine) or kubernetes."),
    ("--host", "HOST", "Listen address. Default: 127.0.0.1 for embedded, else all addresses."),
    ("--port", "PORT", "Port; 0 selects a free one. Default: 8000."),
    ("--state-dir", "DIR", "Directory for the state of jobs, and for the address of this server."),
    ("--token-file", "FILE", "File with the token for clients. Default: a token that is generated at start."),
    ("--allow-unauthenticated", "", "Require no token: each client of the port can run commands."),
    ("--tls-certificate", "FILE", "PEM file with the certificate and its chain."),
    ("--tls-key", "FILE", "PEM file with the key, without a password."),
    ("--tls-client-ca", "FILE", "PEM file with a CA; clients need a certificate of this CA."),
    ("--output-prefixes", "URL", "Allowed output prefixes, such as s3://bucket/ or gs://*."),
    ("--metrics-port", "PORT", "Port of the Prometheus metrics."),
    ("--log-level", "LEVEL", "Log level: debug, info, warning or error."),
    ("--log-format", "FORMAT", "Log format: json or text. Default: text on a terminal, else json."),
    ("--nodes", "N", "Number of nodes of an embedded cluster."),
    ("--cpus", "AMOUNT", "CPUs of each node. Default: all CPUs of this machine."),
    ("--memory", "AMOUNT", "Memory of each node."),
    ("--gpus", "N", "GPUs of each node."),
    ("--images", "IMAGE=VENV", "Virtual environment for an image."),
    ("--strict-images", "", "Fail to pull any other image."),
    ("--durable", "", "Keep jobs when this server stops; the next server continues them."),
    ("--code-dir", "DIR", "Directory with the code of tasks. Default: the current directory."),
    ("--pass-env", "NAME", "Environment variables to pass to replicas."),
    ("--pod-templates", "PATH", "YAML file with PodTemplates, or a directory of such files."),
)
"""The options with a setting: name, type of the value (empty for a flag), and help."""
_REPEATED: Final = ("--output-prefixes", "--images", "--pass-env")


def _build_option(name: str, metavar: str, text: str) -> Callable[[Any], Any]:
    if not metavar:
        return click.option(name, is_flag=True, default=None, help=text)
    return click.option(name, metavar=metavar, multiple=name in _REPEATED, help=text)


@click.command(name="serve", help=_HELP)
@cluster_options.settings_option("server, plugins.k8s")
@cluster_options.add_options(*(_build_option(*each) for each in _OPTIONS))
@cluster_options.connection_options("With --cluster kubernetes. ")
@click.option("--check", is_flag=True, help="Print the effective settings and their problems, and exit.")
@click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", help="Output format of --check."
)
def command(settings: str | None, check: bool, output: str, **typed: Any) -> None:  # noqa: FBT001 - click's signature
    """Run ``kfpytorch serve``: run the server, or with `check` print its settings in the format `output`."""
    flags = serve_settings.build_flags(typed)
    if check:
        with command_io.exit_on_error():
            sys.exit(serve_check.print_report(settings, flags, output))
    try:
        with command_errors.exit_on_invalid_input():
            asyncio.run(_run_server(serve_settings.read_configuration(settings, flags)))
    except KeyboardInterrupt:  # Interrupted before the server listens; later a signal starts a drain.
        sys.exit(128 + signal.SIGINT)


async def _run_server(configuration: Configuration) -> None:
    from backend_plugin.cli import clusters, server_assembly
    from backend_plugin.shell import credentials, logging_setup, memory_tuning, metrics, tracing
    from backend_plugin.shell.server import GrpcServer, ServerOptions

    settings = configuration.server.settings
    memory_tuning.limit_kept_memory(os.environ)
    logging_setup.configure_logging(settings.log_level, settings.log_format)
    async with AsyncExitStack() as stack:
        token = server_assembly.create_token(settings)
        here = await clusters.open_cluster(stack, configuration)
        parts = server_assembly.assemble_server(here, settings)
        if settings.metrics_port is not None:
            port = stack.enter_context(
                metrics.serve_metrics(parts.tasks.metrics, settings.metrics_host, settings.metrics_port)
            )
            _LOG.info("metrics at http://%s:%d/metrics", settings.metrics_host, port)
        interceptors = stack.enter_context(tracing.open_tracing(os.environ))
        server = GrpcServer(
            server_assembly.build_middleware(parts, settings, token),
            ServerOptions(
                host=settings.host,
                port=settings.port,
                receive_bytes=settings.max_receive_message_size,
                send_bytes=settings.max_send_message_size,
                drain_seconds=settings.drain_timeout.total_seconds(),
                credentials=credentials.build_server_credentials(settings.tls) if settings.tls else None,
                interceptors=interceptors,
            ),
        )

        def on_started(port: int) -> None:
            info = server_assembly.build_server_info(settings, token, port)
            _LOG.info("listening at %s", info.endpoint)
            clusters.publish_server(stack, settings, info)

        stack.callback(asyncio.create_task(memory_tuning.tune_collector(parts.tasks.cache.ready)).cancel)
        stack.callback(asyncio.create_task(memory_tuning.trim_regularly()).cancel)
        async with _run_beside(parts.run(), server.stop):
            await server.run(parts.tasks.cache.ready, on_started, parts.drain)


@asynccontextmanager
async def _run_beside(life: Coroutine[Any, Any, None], stop: Callable[[], None]) -> AsyncIterator[None]:
    """Run `life`, a server's background tasks, during the ``with`` block; call `stop` when they end.

    At the end of the ``with`` block, cancel the tasks, and raise their error if they have failed.
    """
    task = asyncio.ensure_future(life)
    task.add_done_callback(lambda _: stop())
    try:
        yield
    finally:
        task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(end, Exception):
            raise end
