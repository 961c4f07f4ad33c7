"""``kfpytorch serve``: the server that FlytePropeller calls.

`serving` builds the parts, `serve_settings` reads their settings, and `serve_check` prints the settings.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import rich_click as click

from backend_plugin.cli import cluster_options, ends, serve_check, serve_settings
from backend_plugin.cli.serve_settings import Configuration
from backend_plugin.core.errors import BackendError, InvalidSettings

_LOG: Final = logging.getLogger("kfpytorch")

_HELP: Final = """Serve Flyte: the connector that FlytePropeller calls, over gRPC.

With the embedded cluster jobs run as processes of this machine; it listens on loopback only, and the
other commands find it by themselves. Every setting can stand in the file below `server`, or in a variable
(KFPYTORCH_PORT); flags go before variables, and those before the file.

\b
  $ kfpytorch serve
  $ kfpytorch serve --settings flyte.yaml --check
"""


@click.command(name="serve", help=_HELP)
@cluster_options.settings_option("server, plugins.k8s")
@click.option(
    "--cluster", metavar="KIND", help="Where jobs run: embedded, as processes of this machine; or kubernetes."
)
@click.option(
    "--host", metavar="HOST", help="Where to listen. Embedded: 127.0.0.1, and nowhere else; else everywhere."
)
@click.option("--port", metavar="PORT", help="Default 8000; 0 for one that is free.")
@click.option("--state", metavar="DIR", help="What is kept of jobs, and how commands find this server.")
@click.option(
    "--token-file", metavar="FILE", help="What callers have to carry. Default for embedded: made at start."
)
@click.option(
    "--open-to-all", is_flag=True, default=None, help="No token: who reaches the port may run commands."
)
@click.option("--tls-certificate", metavar="FILE", help="PEM, with its chain.")
@click.option("--tls-key", metavar="FILE", help="PEM, without a password.")
@click.option("--tls-client-ca", metavar="FILE", help="PEM: clients need a certificate of this authority.")
@click.option(
    "--output-prefixes", metavar="URL", multiple=True, help="Where outputs may lie: s3://bucket/, gs://*."
)
@click.option("--metrics-port", metavar="PORT", help="Show Prometheus metrics there.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--log-format", metavar="FORMAT", help="json or text. Default: text at a terminal.")
@click.option("--nodes", metavar="N", help="How many nodes an embedded cluster has.")
@click.option("--cpus", metavar="AMOUNT", help="Of each node. Default: what this machine has.")
@click.option("--memory", metavar="AMOUNT", help="Of each node.")
@click.option("--gpus", metavar="N", help="Of each node.")
@click.option("--images", metavar="IMAGE=VENV", multiple=True, help="Which environment an image stands for.")
@click.option("--strict-images", is_flag=True, default=None, help="Other images cannot be pulled.")
@click.option("--durable", is_flag=True, default=None, help="Jobs outlive this server; the next one goes on.")
@click.option("--code", metavar="DIR", help="Where the code of tasks is. Default: the current directory.")
@click.option("--pass-env", metavar="NAME", multiple=True, help="Variables that replicas get, too.")
@click.option("--pod-templates", metavar="PATH", help="YAML with PodTemplates, or a folder of such files.")
@cluster_options.reached_options("Of a Kubernetes. ")
@click.option("--check", is_flag=True, help="Print what is in force and what is wrong, and end.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", help="Of --check.")
def command(settings: str | None, check: bool, output: str, **typed: Any) -> None:  # noqa: FBT001 - click's signature
    """Run ``kfpytorch serve``."""
    flags = serve_settings.flags(typed)
    if check:
        sys.exit(serve_check.check(settings, flags, output))
    try:
        asyncio.run(_serve(serve_settings.read(settings, flags)))
    except InvalidSettings as refusal:
        ends.refuse_all(refusal.problems)
    except (ends.Unreadable, BackendError) as error:
        ends.refuse(error)
    except KeyboardInterrupt:  # Interrupted before it listens; later a signal starts a drain.
        sys.exit(128 + signal.SIGINT)


async def _serve(configuration: Configuration) -> None:
    """Start the server, run it until it is stopped, and clean up."""
    from backend_plugin.cli import clusters, serving
    from backend_plugin.shell import allocator, discovery, garbage, logs, metrics, tracing
    from backend_plugin.shell.server import Server

    said = configuration.server.settings
    allocator.limit_kept_memory(os.environ)
    logs.set_up(said.log_level, said.log_format)
    async with AsyncExitStack() as stack:
        token = serving.token_of(said)
        here = await clusters.opened(stack, configuration)
        parts = serving.assembled(here, said)
        if said.metrics_port is not None:
            port = stack.enter_context(metrics.shown(parts.metrics, said.metrics_host, said.metrics_port))
            _LOG.info("metrics at http://%s:%d/metrics", said.metrics_host, port)
        interceptors = stack.enter_context(tracing.traced(os.environ))
        server = Server(serving.fronts(parts, said, token), serving.options(said, interceptors))

        def started(port: int) -> None:
            host = f"[{said.host}]" if ":" in said.host else said.host
            scheme, roots = ("grpcs://", str(said.tls.certificate)) if said.tls else ("", "")
            reached = discovery.Server(
                endpoint=f"{scheme}{host}:{port}",
                token="" if said.token_file else token,
                token_file=str(said.token_file or ""),
                pid=os.getpid(),
                roots=roots,
            )
            _LOG.info("listening at %s", reached.endpoint)
            clusters.tell(stack, said, reached)

        stack.callback(asyncio.create_task(garbage.look_seldom(parts.cache.ready)).cancel)
        stack.callback(asyncio.create_task(allocator.trim_regularly()).cancel)
        async with _beside(parts.run(), server.stop):
            await server.run(parts.cache.ready, started, parts.settle)


@asynccontextmanager
async def _beside(life: Coroutine[Any, Any, None], stop: Callable[[], None]) -> AsyncIterator[None]:
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
