"""TLS certificates, the token and the signing keys of a server, read from files.

Changed files are read again, because certificates and Kubernetes secrets are rotated. If the new content of a
file is invalid, the error is logged, and the previous content stays in use.
"""

import contextlib
import hmac
import logging
import os
import secrets
import ssl
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc

from backend_plugin.core.signing import SigningKeys
from backend_plugin.shell import bounded_read
from backend_plugin.shell.reloaded_value import ReloadedValue, UnusableCredentials

_LOG: Final = logging.getLogger(__name__)
_SCHEME: Final = "bearer "
_KEY_FILE: Final = "signing.keys"
_MIN_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files of the server's certificate and of the CA for client certificates."""

    certificate: Path
    """A PEM file with the certificate, followed by its chain."""
    key: Path
    """A PEM file with the private key, without a password."""
    client_ca: Path | None = None
    """A PEM file with the CA of the certificates that clients need (mTLS). None: clients need none."""
    client_names: Sequence[str] = ()
    """Accepted names in client certificates; empty for all names."""


def read_peer_names(auth_context: Mapping[str, Iterable[bytes]]) -> Set[str]:
    """Return the common name and the subject alternative names of a verified client certificate."""
    keys = ("x509_common_name", "x509_subject_alternative_name")
    return {name.decode(errors="replace") for key in keys for name in auth_context.get(key, ())}


def build_server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Return the TLS credentials of a gRPC port; each new connection uses the current certificate.

    Raises:
        UnusableCredentials: If a file is missing or invalid, or the key does not match the certificate.
    """
    files = [each for each in (tls.certificate, tls.key, tls.client_ca) if each is not None]
    followed = ReloadedValue(files, lambda: _build_configuration(tls))

    def fetch() -> Any:
        return followed.value if followed.reload_if_changed() else None

    return grpc.dynamic_ssl_server_credentials(
        followed.value, fetch, require_client_authentication=tls.client_ca is not None
    )


def _build_configuration(tls: Tls) -> Any:
    certificate, key = _read_content(tls.certificate), _read_content(tls.key)
    _require_matching_pair(tls)
    authority = None
    if tls.client_ca is not None:
        authority = _read_content(tls.client_ca)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=authority.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise UnusableCredentials(
                f"{tls.client_ca}: contains no CA certificate; write it as PEM"
            ) from error
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)


def _require_matching_pair(tls: Tls) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without this callback OpenSSL prompts for a password at the terminal.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: b"")
    except ssl.SSLError as error:
        raise UnusableCredentials(
            f"{tls.certificate} and {tls.key} are not a certificate and its key ({error.reason or error}); "
            "write both as PEM, the key without a password"
        ) from error
    except OSError as error:  # The file was changed after it was read.
        raise UnusableCredentials(f"{tls.certificate} or {tls.key}: {error.strerror}") from error


@dataclass(slots=True)
class Token:
    """The secret that every call carries as metadata ``authorization: Bearer ...``."""

    _secret: ReloadedValue[bytes] = field(repr=False)

    @classmethod
    def from_secret(cls, secret: str) -> "Token":
        """Return a token that never changes."""
        return cls(ReloadedValue((), secret.encode))

    @classmethod
    def from_file(cls, file: Path) -> "Token":
        """Return the token of a file, which is read again when it changes.

        Raises:
            UnusableCredentials: If the file contains no valid token.
        """
        return cls(ReloadedValue((file,), lambda: _read_secret(file)))

    @property
    def secret(self) -> str:
        """The token that clients must send."""
        return self._secret.value.decode()

    def is_in(self, metadata: Sequence[tuple[str, str | bytes]]) -> bool:
        """True if the metadata contains the token; compares in constant time."""
        secret = self._secret.current
        for key, value in metadata:
            if key == "authorization" and isinstance(value, str):
                sent = value[len(_SCHEME) :] if value[: len(_SCHEME)].lower() == _SCHEME else ""
                return hmac.compare_digest(sent.strip().encode(), secret)
        return False


KeyRing: TypeAlias = ReloadedValue[SigningKeys]
"""The keys that sign and verify jobs and references to jobs; read again when their file changes."""


def read_key_file(file: Path, *, accepts_unsigned: bool) -> KeyRing:
    """Return the keys of a file, which contains one key per line; the first key signs.

    With `accepts_unsigned`, jobs and references without a signature are valid, too.

    Raises:
        UnusableCredentials: If a line is not a key, or the file is empty.
    """
    return ReloadedValue(
        (file,), lambda: SigningKeys(keys=_read_signing_keys(file), accepts_unsigned=accepts_unsigned)
    )


def ensure_key_file(directory: Path) -> Path:
    """Return the file of the signing key in a state directory; a missing key is created.

    Raises:
        UnusableCredentials: If the key cannot be written.
    """
    file = directory / _KEY_FILE
    try:
        _create_key_file(file)
    except OSError as error:
        raise UnusableCredentials(f"{file}: {error.strerror}; name signing-keys-file") from error
    return file


def _create_key_file(file: Path) -> None:
    """Create a key file atomically, unless it exists."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file.exists():
        return
    new = file.with_suffix(f".{os.getpid()}")
    new.touch(mode=0o600)
    new.write_text(secrets.token_hex(32) + "\n")
    # Another server may create the file first; unlike a rename, a link does not replace it.
    with contextlib.suppress(FileExistsError):
        os.link(new, file)
    new.unlink()


def _read_signing_keys(file: Path) -> tuple[bytes, ...]:
    keys = tuple(line.strip() for line in _read_content(file).splitlines() if line.strip())
    if not keys or any(len(key) < _MIN_KEY_BYTES or len(key.split()) > 1 for key in keys):
        raise UnusableCredentials(
            f"{file}: contains a line that is not a key; write one word of at least {_MIN_KEY_BYTES} "
            "characters per line, for example from: openssl rand -hex 32"
        )
    return keys


def _read_secret(file: Path) -> bytes:
    # Editors and `echo` append a newline.
    secret = _read_content(file).strip()
    if not secret or not secret.isascii() or len(secret.split()) > 1:
        raise UnusableCredentials(
            f"{file}: contains no token; write one word, for example from: openssl rand -hex 32"
        )
    return secret


def _read_content(file: Path) -> bytes:
    try:
        return bounded_read.read_file(file, bounded_read.LONGEST_SECRET)
    except OSError as error:
        account = f" (this is user {os.geteuid()})" if isinstance(error, PermissionError) else ""
        raise UnusableCredentials(f"{file}: {error.strerror}{account}") from error
