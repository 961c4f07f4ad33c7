"""Check the packages of a task, and load its data set and model, before a local run."""

import hashlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from kfpytorch_common.data_sources import DATASET, MODEL, PATH_VARIABLES

# Trainer's patterns for models: files that it ignores by default, and files that it loads from hf://.
_WEIGHTS_TO_IGNORE: Final = ("*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth")
_MODEL_FILES: Final = ("*.json", "*.safetensors", "*.model", "*.txt")
_PACKAGES: Final = {"hf": "huggingface_hub", "s3": "s3fs"}


class DataNotLoaded(Exception):
    """A data set or a model cannot be loaded on this machine."""


def load_sources(config: Any) -> Mapping[str, str]:
    """Load the data set and the model of a config. Return the environment variables with their directories.

    If the user has set one of these variables to a directory, use this directory instead of loading files.

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
    _load_files(kind, source.uri, directory, {**os.environ, **(source.env or {})})
    return directory


def _load_files(kind: str, uri: str, directory: Path, env: Mapping[str, str]) -> None:
    """Load the files at a valid URI into `directory`, except those that an initializer of Trainer ignores.

    `env` has the variables that an initializer reads, such as ``ACCESS_TOKEN`` and ``IGNORE_PATTERNS``.
    """
    scheme, _, path = uri.partition("://")
    package = _import_package(kind, uri, scheme)
    directory.mkdir(parents=True, exist_ok=True)
    ignored = _list_ignored_patterns(kind, env)
    if scheme == "s3":
        _load_objects(package, path, directory, ignored, env)
        return
    package.snapshot_download(
        repo_id=path,
        repo_type=kind if kind == DATASET else None,
        local_dir=str(directory),
        allow_patterns=[*_MODEL_FILES] if kind == MODEL else None,
        ignore_patterns=[*ignored] or None,
        token=env.get("ACCESS_TOKEN") or None,
    )


def _import_package(kind: str, uri: str, scheme: str) -> Any:
    instead = f"or set {PATH_VARIABLES[kind]} to a directory with the files"
    name = _PACKAGES.get(scheme)
    if name is None:
        raise DataNotLoaded(f"the {kind} {uri} exists only in a cluster: run it there, {instead}")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DataNotLoaded(
            f"the {kind} {uri} needs the package {name}: pip install {name}, {instead}"
        ) from error


def _list_ignored_patterns(kind: str, env: Mapping[str, str]) -> Sequence[str]:
    given = [each.strip() for each in env.get("IGNORE_PATTERNS", "").split(",") if each.strip()]
    return given or (_WEIGHTS_TO_IGNORE if kind == MODEL else ())


def _load_objects(
    package: Any, path: str, directory: Path, ignored: Sequence[str], env: Mapping[str, str]
) -> None:
    """Load the S3 objects below the prefix `path`, except those with a file of the same size in `directory`.

    `package` is the module ``s3fs``, and `ignored` has patterns of the object keys to skip.
    """
    store = _open_store(package, env)
    prefix = path.rstrip("/")
    for name, about in sorted(store.find(prefix, detail=True).items()):
        if _is_ignored(name, ignored):
            continue
        file = directory / (name[len(prefix) :].lstrip("/") or Path(name).name)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.stat().st_size != about["size"]:
            store.get_file(name, str(file))


def _open_store(package: Any, env: Mapping[str, str]) -> Any:
    region = env.get("REGION")
    return package.S3FileSystem(
        key=env.get("ACCESS_KEY_ID"),
        secret=env.get("SECRET_ACCESS_KEY"),
        endpoint_url=env.get("ENDPOINT"),
        client_kwargs={"region_name": region} if region else {},
    )


def _is_ignored(name: str, patterns: Iterable[str]) -> bool:
    key = name.partition("/")[2]
    return name.endswith("/") or any(fnmatch(key, pattern) for pattern in patterns)


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
