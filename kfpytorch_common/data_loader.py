"""Load a data set or a model into a directory, as an initializer of Kubeflow Trainer does.

Local runs call `load`. In an embedded cluster, this module runs in place of the image of an initializer::

    STORAGE_URI=s3://bucket/prefix python -m kfpytorch_common.data_loader dataset DIRECTORY
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from kfpytorch_common.data_sources import DATASET, MODEL, URI_VARIABLE

# The defaults of Trainer for models.
_WEIGHTS_TO_IGNORE: Final = ("*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth")
_MODEL_FILES: Final = ("*.json", "*.safetensors", "*.model", "*.txt")
_PACKAGES: Final = {"hf": "huggingface_hub", "s3": "s3fs"}


class LoaderNotInstalled(Exception):
    """The package that loads a URI is not installed; contains the name of the package."""


class UnsupportedUri(Exception):
    """The URI exists only in a cluster; contains the URI."""


def load(kind: str, uri: str, directory: Path, env: Mapping[str, str]) -> int:
    """Load all files of a URI, and return their number.

    Args:
        kind: ``dataset`` or ``model``.
        uri: The URI, which is valid.
        directory: The directory for the files, which is created.
        env: The variables of an initializer of Trainer, such as ``ACCESS_TOKEN`` and ``ENDPOINT``.

    Raises:
        LoaderNotInstalled: If the package for the URI is not installed.
        UnsupportedUri: If the URI is that of a data cache.
    """
    scheme, _, path = uri.partition("://")
    if scheme not in _PACKAGES:
        raise UnsupportedUri(uri)
    try:
        package = importlib.import_module(_PACKAGES[scheme])
    except ImportError as error:
        raise LoaderNotInstalled(_PACKAGES[scheme]) from error
    directory.mkdir(parents=True, exist_ok=True)
    ignored = _read_patterns(kind, env)
    if scheme == "s3":
        return _load_objects(package, path, directory, ignored, env)
    package.snapshot_download(
        repo_id=path,
        repo_type=kind if kind == DATASET else None,
        local_dir=str(directory),
        allow_patterns=[*_MODEL_FILES] if kind == MODEL else None,
        ignore_patterns=[*ignored] or None,
        token=env.get("ACCESS_TOKEN") or None,
    )
    return sum(path.is_file() for path in directory.rglob("*"))


def _read_patterns(kind: str, env: Mapping[str, str]) -> Sequence[str]:
    given = [each.strip() for each in env.get("IGNORE_PATTERNS", "").split(",") if each.strip()]
    return given or (_WEIGHTS_TO_IGNORE if kind == MODEL else ())


def _load_objects(
    package: Any, path: str, directory: Path, ignored: Sequence[str], env: Mapping[str, str]
) -> int:
    """Load the objects below a prefix, except those that exist in the directory with the same size."""
    region = env.get("REGION")
    store = package.S3FileSystem(
        key=env.get("ACCESS_KEY_ID"),
        secret=env.get("SECRET_ACCESS_KEY"),
        endpoint_url=env.get("ENDPOINT"),
        client_kwargs={"region_name": region} if region else {},
    )
    prefix = path.rstrip("/")
    found = 0
    for name, about in sorted(store.find(prefix, detail=True).items()):
        key = name.partition("/")[2]
        if name.endswith("/") or any(fnmatch(key, pattern) for pattern in ignored):
            continue
        file = directory / (name[len(prefix) :].lstrip("/") or Path(name).name)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.stat().st_size != about["size"]:
            store.get_file(name, str(file))
        found += 1
    return found


def main(arguments: Sequence[str]) -> None:
    """Load the URI in the environment into a directory."""
    kind, directory = arguments
    uri = os.environ[URI_VARIABLE]
    print(f"loading {uri}", flush=True)  # noqa: T201
    found = load(kind, uri, Path(directory), os.environ)
    print(f"loaded {found} files", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
