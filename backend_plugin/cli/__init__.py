"""What people type: one module a command, loaded when it is typed. The only place that composes."""

import errno
import os
import sys
from importlib import import_module
from typing import Final

# What the extra `backend` brings. Authors need none of it, and have this command all the same.
_EXTRA: Final = (
    "fsspec", "grpc", "grpc_health", "grpc_reflection", "msgspec", "prometheus_client", "psutil",
    "pythonjsonlogger", "rich_click", "typing_extensions", "yaml",
)  # fmt: skip
# What a command is not to blame for, and cannot say better.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """The console script."""
    _open_streams()
    try:
        import_module("backend_plugin.cli.commands").kfpytorch()
    except ModuleNotFoundError as missing:
        if missing.name not in _EXTRA:
            raise
        sys.exit(
            f"kfpytorch needs {missing.name}, which is not installed; write: "
            'pip install "flytekitplugins-kfpytorch[backend]"'
        )
    except OSError as error:
        if error.errno not in _FULL:
            raise
        sys.exit(f"Error: the answer cannot be written: {error.strerror}")


def _open_streams() -> None:
    """Whoever has closed a stream wants to hear nothing there; it is no reason to fail."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - for good.
