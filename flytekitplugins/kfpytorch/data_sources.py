"""Configs for the data set and the model that Kubeflow Trainer loads before the nodes of a TrainJob start."""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from flytekitplugins.kfpytorch import quantities
from flytekitplugins.kfpytorch.config_base import ConfigPart, build_config_reader
from flytekitplugins.kfpytorch.problems import ConfigProblem, InvalidValue, build_invalid_value
from flytekitplugins.kfpytorch.validators import Reader, build_optional_reader
from kfpytorch_common import data_sources, labels


def _build_uri_reader(kind: str) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, str):
            raise build_invalid_value(value, "must be a URI as text")
        if remedy := data_sources.find_uri_remedy(kind, value):
            raise build_invalid_value(value, remedy)
        return value

    return read


def _read_object_name(value: object) -> object:
    if isinstance(value, str) and labels.is_subdomain(value):
        return value
    raise build_invalid_value(value, f"must be the name of an object in the cluster: {labels.SUBDOMAIN}")


def _read_variables(value: object) -> object:
    if not isinstance(value, Mapping) or len(value) >= data_sources.MOST_VARIABLES:
        limit = data_sources.MOST_VARIABLES - 1
        raise build_invalid_value(value, f"must be a dict of at most {limit} variables")
    problems = [problem for name, item in value.items() for problem in _check_variable(name, item)]
    if problems:
        raise InvalidValue(*problems)
    return dict(value)


def _check_variable(name: object, value: object) -> Iterator[ConfigProblem]:
    if not (isinstance(name, str) and isinstance(value, str)):
        yield ConfigProblem(f"[{name!r}]", value, "a variable and its value must be text")
    elif remedy := data_sources.find_variable_remedy(name, value):
        # The value may be a credential.
        yield ConfigProblem(f"[{name!r}]", "...", remedy)


_ACCESS_READERS: Final[Mapping[str, Reader]] = {
    "secret": build_optional_reader(_read_object_name),
    "env": build_optional_reader(_read_variables),
}


@dataclass(kw_only=True)
class Dataset(ConfigPart):
    """A data set that Kubeflow Trainer loads before the nodes of a TrainJob start.

    The ranks find the files in the directory that the variable ``FLYTE_KFPYTORCH_DATASET`` contains. In a
    job it is ``/workspace/dataset``.

    Args:
        uri: ``hf://owner/name`` or ``s3://bucket/prefix``. With ``runtime`` also ``cache://schema/table``.
        secret: The name of a Secret in the namespace of the task. Its keys become variables of the loader,
            such as ``ACCESS_TOKEN``, or ``ACCESS_KEY_ID`` and ``SECRET_ACCESS_KEY``.
        env: Variables of the loader, such as ``ENDPOINT``, ``REGION`` or ``IGNORE_PATTERNS``. Credentials
            are an error here, because each reader of the job sees them.
    """

    uri: str
    secret: str | None = None
    env: Mapping[str, str] | None = None

    readers: ClassVar[Mapping[str, Reader]] = {
        "uri": _build_uri_reader(data_sources.DATASET),
        **_ACCESS_READERS,
    }


@dataclass(kw_only=True)
class Model(ConfigPart):
    """A model that Kubeflow Trainer loads before the nodes of a TrainJob start.

    The ranks find the files in the directory that the variable ``FLYTE_KFPYTORCH_MODEL`` contains. In a job
    it is ``/workspace/model``.

    Args:
        uri: ``hf://owner/name`` or ``s3://bucket/prefix``.
        secret: See `Dataset`.
        env: See `Dataset`.
    """

    uri: str
    secret: str | None = None
    env: Mapping[str, str] | None = None

    readers: ClassVar[Mapping[str, Reader]] = {
        "uri": _build_uri_reader(data_sources.MODEL),
        **_ACCESS_READERS,
    }


def _read_size(value: object) -> object:
    if not isinstance(value, str) or not quantities.parse_quantity(value):
        raise build_invalid_value(value, "must be a size such as '50Gi'")
    return value


@dataclass(kw_only=True)
class Storage(ConfigPart):
    """The volume for a data set and a model.

    Write either ``size``, for a volume that exists as long as the job, or ``claim``.

    Args:
        size: The size of a new volume, such as ``"50Gi"``. Several nodes need a storage class that supports
            the access mode ``ReadWriteMany``.
        storage_class: The storage class of the new volume. Default: that of the cluster.
        claim: The name of an existing PersistentVolumeClaim in the namespace of the task. Its directories
            ``dataset`` and ``model`` are used, and their files remain after the job.
    """

    size: str | None = None
    storage_class: str | None = None
    claim: str | None = None

    readers: ClassVar[Mapping[str, Reader]] = {
        "size": build_optional_reader(_read_size),
        "storage_class": build_optional_reader(_read_object_name),
        "claim": build_optional_reader(_read_object_name),
    }

    def _find_contradictions(self, sound: Set[str]) -> Iterator[ConfigProblem]:
        if "claim" in sound and self.claim is not None:
            for name in ("size", "storage_class"):
                if getattr(self, name) is not None:
                    yield ConfigProblem(
                        name, getattr(self, name), "an existing claim has its own; leave it out"
                    )
        elif {"claim", "size"} <= sound and self.size is None:
            yield ConfigProblem("size", None, "write a size such as '50Gi', or the name of a claim")


def _build_short_reader(cls: type[ConfigPart], build: Callable[[str], ConfigPart]) -> Reader:
    """Return a reader for a config, or for the text from which `build` makes one."""

    def read(value: object) -> object:
        return build_config_reader(cls)(build(value) if isinstance(value, str) else value)

    return read


READERS: Final[Mapping[str, Reader]] = {
    "dataset": build_optional_reader(_build_short_reader(Dataset, lambda uri: Dataset(uri=uri))),
    "model": build_optional_reader(_build_short_reader(Model, lambda uri: Model(uri=uri))),
    "storage": build_optional_reader(_build_short_reader(Storage, lambda size: Storage(size=size))),
}
"""The readers of the fields of `TrainJob`."""


def find_contradictions(options: Any) -> Iterator[ConfigProblem]:
    """Yield the contradictions between the sources, the storage and the runtime of a `TrainJob`."""
    sources = [each for each in (options.dataset, options.model) if each is not None]
    if options.storage is not None and options.runtime is not None:
        yield ConfigProblem("storage", options.storage, "the runtime has the volume; leave it out")
    elif options.storage is not None and not sources:
        yield ConfigProblem("storage", options.storage, "has no dataset or model; leave it out")
    elif sources and options.storage is None and options.runtime is None:
        remedy = "dataset and model need a volume; write storage='50Gi' or storage=Storage(claim='...')"
        yield ConfigProblem("storage", None, remedy)
    if options.dataset is not None and options.runtime is None:
        uri = options.dataset.uri
        if uri.startswith(data_sources.CACHE_SCHEME):
            yield ConfigProblem(
                "dataset.uri", uri, f"{data_sources.CACHE_REFUSAL}; {data_sources.CACHE_REMEDY}"
            )


def check_pod(options: Any) -> Iterator[ConfigProblem]:
    """Yield each source of a task that is an ordinary pod, which has no initializers."""
    for name in data_sources.PATHS:
        if (source := getattr(options, name, None)) is not None:
            remedy = "nnodes=1 is an ordinary pod, for which nothing is loaded; write nnodes='1'"
            yield ConfigProblem(f"train_job.{name}", source.uri, remedy)
