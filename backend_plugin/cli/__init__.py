"""The ``kfpytorch`` command: one module per subcommand, imported when it runs."""

import errno
import os
import sys
from importlib import import_module
from typing import Final

# Packages of the extra `backend`. An installation for authors does not have them, but has this command.
_EXTRA: Final = (
    "fsspec", "grpc", "grpc_health", "grpc_reflection", "msgspec", "prometheus_client", "psutil",
    "pythonjsonlogger", "rich_click", "typing_extensions", "yaml",
)  # fmt: skip
# Errors of a full disk, an exceeded quota or a too large file, which get a short message.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Run the command line of ``kfpytorch``; exit with a message if a Python package is missing."""
    _open_streams()
    try:
        import_module("backend_plugin.cli.commands").kfpytorch()
    except ModuleNotFoundError as missing:
        if missing.name == "flytekit":
            sys.exit(
                "kfpytorch needs flytekit to read a Python file, and it is not installed; "
                'write: pip install flytekitplugins-kfpytorch, or name a file that "pyflyte package" wrote'
            )
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
    """Open the null device in place of each closed standard stream, so that its use raises no error."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until exit.
