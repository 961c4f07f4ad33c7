"""The ``kfpytorch`` command: one module per subcommand, imported when it runs."""

import sys
from importlib import import_module
from typing import Final

# Packages of the extra `backend`. An installation for authors does not have them, but has this command.
_EXTRA: Final = (
    "fsspec", "grpc", "grpc_health", "grpc_reflection", "msgspec", "prometheus_client", "psutil",
    "pythonjsonlogger", "rich_click", "typing_extensions", "yaml",
)  # fmt: skip


def main() -> None:
    """Run the command line of ``kfpytorch``; exit with a message if a Python package is missing."""
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
