"""Check the packages of a task, and load its data set and model, before a local run."""

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from kfpytorch_common import data_loader
from kfpytorch_common.data_sources import PATH_VARIABLES


class DataNotLoaded(Exception):
    """A data set or a model cannot be loaded on this machine."""


def load_sources(config: Any) -> Mapping[str, str]:
    """Load the data set and the model of a config. Return the environment variables with their directories.

    If the user has set one of these variables to a directory, this directory is used, and nothing is loaded.

    Raises:
        DataNotLoaded: A package is missing, the URI exists only in a cluster, or a variable that the user has
            set is not the path of a directory.
    """
    sources = {kind: getattr(config.train_job, kind, None) for kind in PATH_VARIABLES}
    return {
        PATH_VARIABLES[kind]: str(_find_set_directory(PATH_VARIABLES[kind]) or _load(kind, source))
        for kind, source in sources.items()
        if source is not None
    }


def _find_set_directory(variable: str) -> Path | None:
    value = os.environ.get(variable)
    if value and not Path(value).is_dir():
        raise DataNotLoaded(
            f"{variable}={value} is not a directory: set it to one with the files, or unset it"
        )
    return Path(value) if value else None


def _load(kind: str, source: Any) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(cache, "kfpytorch", kind, hashlib.sha256(source.uri.encode()).hexdigest()[:16])
    print(f"kfpytorch  loading {source.uri} to {directory}", file=sys.stderr, flush=True)  # noqa: T201
    instead = f"or set {PATH_VARIABLES[kind]} to a directory with the files"
    try:
        data_loader.load(kind, source.uri, directory, {**os.environ, **(source.env or {})})
    except data_loader.LoaderNotInstalled as error:
        raise DataNotLoaded(
            f"the {kind} {source.uri} needs the package {error}: pip install {error}, {instead}"
        ) from error
    except data_loader.UnsupportedUri as error:
        raise DataNotLoaded(
            f"the {kind} {source.uri} exists only in a cluster: run it there, {instead}"
        ) from error
    return directory


class PackagesNotInstalled(ImportError):
    """The task requires packages that are not installed on this machine."""


def require_packages(task_config: Any) -> None:
    """Raise `PackagesNotInstalled` if a required package is not installed or has another version."""
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
