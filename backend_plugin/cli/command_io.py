"""Common parts of the commands that call a server: options, exit codes and JSON output."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import rich_click as click
from google.protobuf.message import Message

from backend_plugin.cli import cluster_options, command_errors, json_lines, tables

if TYPE_CHECKING:
    from backend_plugin.server_address import Server

Command = TypeVar("Command", bound=Callable[..., Any])
MessageType = TypeVar("MessageType", bound=Message)

_CREDENTIALS: Final = (
    ("token", "TOKEN", "The server's access token. Default: KFPYTORCH_TOKEN, which other users cannot see."),
    ("ca", "FILE", "PEM: the authority of the server's certificate. Default: KFPYTORCH_CA, or the system's."),
    ("cert", "FILE", "PEM: your certificate, if the server requires one. Default: KFPYTORCH_CERT."),
    ("key", "FILE", "PEM: the key of --cert. Default: KFPYTORCH_KEY."),
    (
        "tls-server-name",
        "HOST",
        "The name in the server's certificate, if it is not the address. Default: KFPYTORCH_TLS_SERVER_NAME.",
    ),
)
credential_options: Final = cluster_options.add_options(
    *(click.option(f"--{name}", metavar=kind, default="", help=text) for name, kind, text in _CREDENTIALS)
)
"""A decorator that adds ``--token``, ``--ca``, ``--cert``, ``--key`` and ``--tls-server-name``."""
server_options: Final = cluster_options.add_options(
    click.option(
        "--server",
        metavar="HOST:PORT",
        help="The server: HOST:PORT, grpcs://HOST:PORT for TLS, or its state directory. "
        "Default: KFPYTORCH_SERVER, or your server on this machine.",
    ),
    credential_options,
)
"""A decorator that adds ``--server`` and the options of `credential_options`."""


def request_options(human: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--namespace``, the options of `server_options`, and ``--output``.

    `human` is the default of ``--output``: a format for people, such as ``table``.
    """
    return cluster_options.add_options(
        click.option("--namespace", "-n", metavar="NAME", help="Only jobs of this namespace."),
        server_options,
        output_option(human),
    )


def get_request_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments ``namespace`` and ``server`` for a function of `client`."""
    return {"namespace": options["namespace"], "server": read_server(options, options["server"])}


def read_server(options: Mapping[str, Any], address: str | None) -> "Server":
    """Return the server at `address`, with the credentials in the options of a command.

    If `address` is None, the server is that in ``KFPYTORCH_SERVER``, or the user's server on this machine.

    Raises:
        UsageError: If a value is malformed, or if only one of ``--cert`` and ``--key`` is given, and the
            environment does not contain the path of the other file.
    """
    from backend_plugin.server_address import FILES, Server, is_address

    if address is not None and not is_address(address):
        raise click.UsageError(
            f"{address!r} is not the address of a server; write HOST:PORT, grpcs://HOST:PORT, "
            "or the state directory of a server"
        )
    if not (options["token"].isascii() and options["token"].isprintable()):
        raise click.UsageError("--token is not a token; write one word of plain characters")
    named = {name: options[name] for name in ("token", "ca", "cert", "key", "tls_server_name")}
    if named["cert"] or named["key"]:
        pair = {name: named[name] or os.environ.get(FILES[name], "") for name in ("cert", "key")}
        if not all(pair.values()):
            missing = next(name for name, file in pair.items() if not file)
            raise click.UsageError(
                f"--cert and --key belong together; write --{missing} FILE, or set {FILES[missing]}"
            )
        named |= pair
    return Server(address=address, **named)


def output_option(human: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--output`` with two formats: ``json``, and the default `human`."""
    return click.option(
        "--output", "-o", type=click.Choice([human, "json"]), default=human, show_default=True
    )


def parse_duration(_: click.Context, __: click.Parameter, text: str) -> timedelta:
    """Parse a duration such as ``10m``, as a callback of `click.option`."""
    from backend_plugin.core.settings import value_parsers
    from backend_plugin.core.settings.engine import InvalidSettingValue

    try:
        return value_parsers.duration(text)
    except InvalidSettingValue as wrong:
        raise click.BadParameter(f"{text!r} {wrong.message}; {wrong.remedy}") from wrong


def _parse_timeout(context: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    """Parse ``--timeout``, as a callback of `click.option`; zero is rejected, and None stays None."""
    if text is None:
        return None
    timeout = parse_duration(context, parameter, text)
    if not timeout:
        raise click.BadParameter(f"{text!r} is no time; leave --timeout out for the default")
    return timeout


def timeout_option(text: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--timeout`` with the help text `text`."""
    return click.option("--timeout", metavar="DURATION", callback=_parse_timeout, help=text)


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Convert exceptions to exit codes: 1 for a failed request, 2 for a name that is not UTF-8.

    For Ctrl-C and for a closed stdout, the exit code is 128 plus the number of SIGINT or SIGPIPE.
    """
    # Otherwise gRPC logs closed connections to stderr.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from backend_plugin.client import RequestFailed

    try:
        yield
        sys.stdout.flush()
    except RequestFailed as error:
        command_errors.exit_with_error(error)
    except UnicodeEncodeError as error:
        command_errors.exit_with_error(
            command_errors.Misused(f"{error.object!r} is not text; write a name in UTF-8")
        )
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # Otherwise buffered output would raise the same error again at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


def print_line(text: str) -> None:
    """Print a line and flush stdout."""
    click.echo(text)
    sys.stdout.flush()


def print_json_line(value: Any) -> None:
    """Print one value as JSON on one line, and flush stdout."""
    sys.stdout.buffer.write(json_lines.encode_json(value) + b"\n")
    sys.stdout.buffer.flush()


def print_messages(
    messages: Sequence[MessageType],
    form: str,
    header: Sequence[str],
    format_row: Callable[[MessageType], Sequence[str]],
    empty: str,
) -> None:
    """Print messages as JSON if `form` is ``json``, otherwise as a table.

    Without messages, `empty` is printed to stderr instead of a table.
    """
    if form == "json":
        json_lines.print_json([encode_message(each) for each in messages])
    elif messages:
        click.echo("\n".join(tables.format_table(header, [format_row(each) for each in messages])))
    else:
        click.echo(empty, err=True)


def print_message(message: Message, form: str, lines: Iterable[str]) -> None:
    """Print a message as JSON if `form` is ``json``, otherwise print `lines`, its content for people."""
    if form == "json":
        json_lines.print_json(encode_message(message))
    else:
        click.echo("\n".join(lines))


def encode_message(message: Message) -> Mapping[str, Any]:
    """Return a message as JSON values for scripts, with every field; unset optional fields are null."""
    return {field.name: _encode_field(message, field) for field in message.DESCRIPTOR.fields}


def _encode_field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "append"):
        return [_encode_value(each, field) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _encode_value(value, field)


def _encode_value(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        name = str(field.enum_type.values_by_number[value].name)
        return name.removeprefix("NODE_STATE_").lower()
    if not isinstance(value, Message):
        return value
    if value.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        return value.ToJsonString()  # type: ignore[attr-defined]
    return encode_message(value)
