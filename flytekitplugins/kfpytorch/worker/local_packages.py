"""The check that the packages of a task are installed on this machine, before a local run."""

from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement


class PackagesNotInstalled(ImportError):
    """The task requires packages that are not installed on this machine."""


def require_packages(task_config: Any) -> None:
    """Raise an error unless all packages of the task are installed.

    Raises:
        PackagesNotInstalled: A package is absent, or its version does not match.
    """
    options = task_config.train_job
    missing = [*_find_missing(options.packages or ())] if options is not None else []
    if missing:
        found = ", ".join(f"{package} ({reason})" for package, reason in missing)
        words = " ".join(f"'{package}'" for package, _ in missing)
        raise PackagesNotInstalled(f"train_job.packages: {found}; install them: pip install {words}")


def _find_missing(packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    for package in packages:
        requirement = Requirement(package)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield package, "not installed"
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            yield package, f"{version} is installed"
