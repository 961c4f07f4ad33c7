"""Load a data set or a model into a directory, as an initializer of Kubeflow Trainer does."""

import importlib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from kfpytorch_common.data_sources import DATASET, MODEL

# Trainer's patterns for models: files that it ignores by default, and files that it loads from hf://.
_WEIGHTS_TO_IGNORE: Final = ("*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth")
_MODEL_FILES: Final = ("*.json", "*.safetensors", "*.model", "*.txt")
_PACKAGES: Final = {"hf": "huggingface_hub", "s3": "s3fs"}


class LoaderNotInstalled(Exception):
    """The package that loads a URI is not installed; the error contains the name of the package."""


class UnsupportedUri(Exception):
    """The URI can be loaded only in a cluster; the error contains the URI."""


def load(kind: str, uri: str, directory: Path, env: Mapping[str, str]) -> None:
    """Load the files at a valid URI into `directory`, except those that an initializer of Trainer ignores.

    `kind` is `DATASET` or `MODEL`. `env` has the variables of an initializer, such as ``ACCESS_TOKEN`` and
    ``IGNORE_PATTERNS``.

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
    given = [each.strip() for each in env.get("IGNORE_PATTERNS", "").split(",") if each.strip()]
    ignored = given or (_WEIGHTS_TO_IGNORE if kind == MODEL else ())
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


def _load_objects(
    package: Any, path: str, directory: Path, ignored: Sequence[str], env: Mapping[str, str]
) -> None:
    """Load the S3 objects below the prefix `path`, except those that `directory` has with the same size.

    `package` is ``s3fs``, and `ignored` has patterns of keys to skip.
    """
    region = env.get("REGION")
    store = package.S3FileSystem(
        key=env.get("ACCESS_KEY_ID"),
        secret=env.get("SECRET_ACCESS_KEY"),
        endpoint_url=env.get("ENDPOINT"),
        client_kwargs={"region_name": region} if region else {},
    )
    prefix = path.rstrip("/")
    for name, about in sorted(store.find(prefix, detail=True).items()):
        key = name.partition("/")[2]
        if name.endswith("/") or any(fnmatch(key, pattern) for pattern in ignored):
            continue
        file = directory / (name[len(prefix) :].lstrip("/") or Path(name).name)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.stat().st_size != about["size"]:
            store.get_file(name, str(file))
