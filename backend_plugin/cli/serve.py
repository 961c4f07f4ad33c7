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

from backend_plugin.cli import cluster_options, command_errors, serve_check, serve_settings
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


@click.command(name="serve", help=_HELP)
@cluster_options.settings_option("server, plugins.k8s")
@click.option(
    "--cluster", metavar="KIND", help="Where jobs run: embedded (processes of this machine) or kubernetes."
)
@click.option(
    "--host", metavar="HOST", help="Listen address. Default: 127.0.0.1 for embedded, else all addresses."
)
@click.option("--port", metavar="PORT", help="Port; 0 selects a free one. Default: 8000.")
@click.option(
    "--state-dir", metavar="DIR", help="Directory for the state of jobs, and for the address of this server."
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="File with the token for clients. Default for embedded: generated at start.",
)
@click.option(
    "--allow-unauthenticated",
    is_flag=True,
    default=None,
    help="Require no token: each client of the port can run commands.",
)
@click.option("--tls-certificate", metavar="FILE", help="PEM file with the certificate and its chain.")
@click.option("--tls-key", metavar="FILE", help="PEM file with the key, without a password.")
@click.option(
    "--tls-client-ca", metavar="FILE", help="PEM file with a CA; clients need a certificate of this CA."
)
@click.option(
    "--output-prefixes",
    metavar="URL",
    multiple=True,
    help="Allowed output prefixes, such as s3://bucket/ or gs://*.",
)
@click.option("--metrics-port", metavar="PORT", help="Port of the Prometheus metrics.")
@click.option("--log-level", metavar="LEVEL", help="Log level: debug, info, warning or error.")
@click.option(
    "--log-format", metavar="FORMAT", help="Log format: json or text. Default: text on a terminal, else json."
)
@click.option("--nodes", metavar="N", help="Number of nodes of an embedded cluster.")
@click.option("--cpus", metavar="AMOUNT", help="CPUs of each node. Default: all CPUs of this machine.")
@click.option("--memory", metavar="AMOUNT", help="Memory of each node.")
@click.option("--gpus", metavar="N", help="GPUs of each node.")
@click.option("--images", metavar="IMAGE=VENV", multiple=True, help="Virtual environment for an image.")
@click.option("--strict-images", is_flag=True, default=None, help="Fail to pull any other image.")
@click.option(
    "--durable",
    is_flag=True,
    default=None,
    help="Keep jobs when this server stops; the next server continues them.",
)
@click.option(
    "--code-dir", metavar="DIR", help="Directory with the code of tasks. Default: the current directory."
)
@click.option("--pass-env", metavar="NAME", multiple=True, help="Environment variables to pass to replicas.")
@click.option(
    "--pod-templates", metavar="PATH", help="YAML file with PodTemplates, or a directory of such files."
)
@cluster_options.connection_options("With --cluster kubernetes. ")
@click.option("--check", is_flag=True, help="Print the effective settings and their problems, and exit.")
@click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", help="Output format of --check."
)
def command(settings: str | None, check: bool, output: str, **typed: Any) -> None:  # noqa: FBT001 - click's signature
    """Run ``kfpytorch serve``."""
    flags = serve_settings.build_flags(typed)
    if check:
        sys.exit(serve_check.print_report(settings, flags, output))
    try:
        with command_errors.exit_on_invalid_input():
            asyncio.run(_run_server(serve_settings.read_configuration(settings, flags)))
    except KeyboardInterrupt:  # Interrupted before it listens; later a signal starts a drain.
        sys.exit(128 + signal.SIGINT)


async def _run_server(configuration: Configuration) -> None:
    """Start the server, run it until it is stopped, and clean up."""
    from backend_plugin.cli import clusters, server_assembly
    from backend_plugin.shell import allocator, gc_tuning, logging_setup, metrics, server_file, tracing
    from backend_plugin.shell.server import GrpcServer

    settings = configuration.server.settings
    allocator.limit_kept_memory(os.environ)
    logging_setup.configure_logging(settings.log_level, settings.log_format)
    async with AsyncExitStack() as stack:
        token = server_assembly.get_token(settings)
        here = await clusters.open_cluster(stack, configuration)
        parts = server_assembly.assemble_server(here, settings)
        if settings.metrics_port is not None:
            port = stack.enter_context(
                metrics.serve_metrics(parts.metrics, settings.metrics_host, settings.metrics_port)
            )
            _LOG.info("metrics at http://%s:%d/metrics", settings.metrics_host, port)
        interceptors = stack.enter_context(tracing.open_tracing(os.environ))
        server = GrpcServer(
            server_assembly.build_middleware(parts, settings, token),
            server_assembly.build_server_options(settings, interceptors),
        )

        def on_started(port: int) -> None:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            scheme, roots = ("grpcs://", str(settings.tls.certificate)) if settings.tls else ("", "")
            info = server_file.ServerInfo(
                endpoint=f"{scheme}{host}:{port}",
                token="" if settings.token_file else token,
                token_file=str(settings.token_file or ""),
                pid=os.getpid(),
                roots=roots,
            )
            _LOG.info("listening at %s", info.endpoint)
            clusters.publish_server(stack, settings, info)

        stack.callback(asyncio.create_task(gc_tuning.tune_collector(parts.cache.ready)).cancel)
        stack.callback(asyncio.create_task(allocator.trim_regularly()).cancel)
        async with _run_beside(parts.run(), server.stop):
            await server.run(parts.cache.ready, on_started, parts.drain)


@asynccontextmanager
async def _run_beside(life: Coroutine[Any, Any, None], stop: Callable[[], None]) -> AsyncIterator[None]:
    """Run the background tasks beside the block; if they end, stop the server and raise their error."""
    task = asyncio.ensure_future(life)
    task.add_done_callback(lambda _: stop())
    try:
        yield
    finally:
        task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(end, Exception):
            raise end
