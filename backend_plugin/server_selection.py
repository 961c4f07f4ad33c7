"""Selects the server to call, with credentials from arguments, the environment and the state directory."""

import os
from dataclasses import replace
from pathlib import Path

from backend_plugin.request_errors import RequestFailed, ServerNotFound, TokenRejected
from backend_plugin.server_address import FILES, SERVER, START_HINT, TLS, TOKEN, Address, Server
from backend_plugin.shell import bounded_read, server_file


def find_server(server: Address) -> Server:
    """Return the server to call, with its address and all credentials.

    If `server` and the environment have no address, the server is the one that runs with the state directory
    of this user.

    Raises:
        ServerNotFound: If no server runs with that state directory, or if the address is another state
            directory and no server runs with it.
        RequestFailed: If the token or a file for TLS is unusable.
    """
    requested = server if isinstance(server, Server) else Server(address=server)
    named = requested.address or os.environ.get(SERVER)
    if named is not None and not _is_state_directory(named):
        return _complete_named_server(requested, named)
    state = Path(named) if named is not None else server_file.get_state_directory(os.environ)
    return _with_local(requested, _require_running_server(state))


def _is_state_directory(named: str) -> bool:
    """True if the text is an existing directory or looks like a path: it contains a slash and no colon."""
    return Path(named).is_dir() or ("/" in named and ":" not in named)


def _complete_named_server(server: Server, named: str) -> Server:
    """Return the server at the address `named`, with credentials from `server` and from the environment.

    If `named` is the address of this user's local server, missing credentials are read from ``server.json``.
    """
    running = server_file.read(server_file.get_state_directory(os.environ))
    if running is None or running.endpoint != named:
        files = {
            name: getattr(server, name) or os.environ.get(variable, "") for name, variable in FILES.items()
        }
        token = _parse_token(server.token, "--token") or _parse_token(os.environ.get(TOKEN, ""), TOKEN)
        return _with_tls(replace(server, address=named, token=token, **files))
    token = server.token or _parse_token(os.environ.get(TOKEN, ""), TOKEN)
    return _with_local(replace(server, token=token), running)


def _require_running_server(state: Path) -> server_file.ServerInfo:
    """Return the server that runs with the state directory; raise `ServerNotFound` if none runs."""
    running, where = server_file.read(state), server_file.get_path(state)
    if running is None or not server_file.is_alive(running):
        raise ServerNotFound(
            f"no server runs here ({where} lists none that runs); {START_HINT}\n"
            f"  or name one: --server HOST:PORT, or {SERVER} in the environment"
        )
    return running


def _with_tls(server: Server) -> Server:
    """Return the server; add ``grpcs://`` to its address if a CA or a client certificate is set."""
    for one, other in (("cert", "key"), ("key", "cert")):
        if getattr(server, one) and not getattr(server, other):
            raise RequestFailed(
                f"--{one} {getattr(server, one)} has no effect without --{other}; "
                f"write --{other} FILE, or set {FILES[other]}"
            )
    address = str(server.address)
    if (server.ca or server.cert) and not address.startswith(TLS):
        return replace(server, address=f"{TLS}{address}")
    return server


def _with_local(server: Server, running: server_file.ServerInfo) -> Server:
    """Return `server` with the address of the local server `running`; add its token and CA if not set."""
    token = _parse_token(server.token, "--token") or running.token
    if not token and running.token_file:
        text = read_file(running.token_file, f"the token of {running.endpoint}").decode(errors="replace")
        token = _parse_token(text, running.token_file)
    return _with_tls(replace(server, address=running.endpoint, token=token, ca=server.ca or running.roots))


def read_file(file: str, what: str) -> bytes:
    """Return the content of a file with a token, a certificate or a key.

    Raises:
        RequestFailed: If the file cannot be read. The message starts with `what`, the name of the content.
    """
    try:
        return bounded_read.read_file(Path(file), bounded_read.LONGEST_SECRET)
    except OSError as error:
        raise RequestFailed(f"{what} cannot be read: {file}: {error.strerror}") from error


def _parse_token(text: str, where: str) -> str:
    """Return the token in `text`, without whitespace around it; raise `TokenRejected` if it is invalid."""
    token = text.strip()
    if not (token.isascii() and token.isprintable()):
        raise TokenRejected(f"{where} does not contain a token: a token has only printable ASCII characters")
    return token
