"""What people type: one module a command, loaded when it is typed. The only place that composes."""

from importlib import import_module


def main() -> None:
    """The console script."""
    import_module("backend_plugin.cli.commands").kfpytorch()
