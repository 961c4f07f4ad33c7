"""The version of the installed package."""

from importlib import metadata


def read_version() -> str:
    """Return the version of the installed package; empty in a source checkout without an installation."""
    try:
        return metadata.version("flytekitplugins-kfpytorch")
    except metadata.PackageNotFoundError:
        return ""
