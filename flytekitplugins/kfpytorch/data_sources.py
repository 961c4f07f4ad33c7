"""Configs for the data set and the model that Kubeflow Trainer loads before the nodes of a TrainJob start."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any, Final

from flytekitplugins.kfpytorch import quantities
from flytekitplugins.kfpytorch.config_base import ConfigPart, build_config_reader
from flytekitplugins.kfpytorch.problems import ConfigProblem, build_invalid_value
from flytekitplugins.kfpytorch.validators import Reader, build_mapping_reader, build_object_name_reader
from kfpytorch_common import data_sources


def _build_uri_reader(kind: str) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, str):
            raise build_invalid_value(value, "must be a URI as text")
        if remedy := data_sources.find_uri_remedy(kind, value):
            raise build_invalid_value(value, remedy)
        return value

    return read


def _check_variable(name: object, value: object) -> Iterator[ConfigProblem]:
    if not (isinstance(name, str) and isinstance(value, str)):
        yield ConfigProblem("", value, "a variable and its value must be text")
    elif remedy := data_sources.find_variable_remedy(name, value):
        # The message does not contain the value, which may be a credential.
        yield ConfigProblem("", "...", remedy)


_read_object_name: Final = build_object_name_reader("an object in the cluster")
_read_env: Final = build_mapping_reader(_check_variable, "must be a dict of variables")


@dataclass(kw_only=True)
class _Source(ConfigPart):
    """The fields that `Dataset` and `Model` share."""

    uri: str
    secret: Annotated[str | None, _read_object_name] = None
    env: Annotated[Mapping[str, str] | None, _read_env] = None


@dataclass(kw_only=True)
class Dataset(_Source):
    """A data set that Kubeflow Trainer loads before the nodes of a TrainJob start.

    The environment variable ``FLYTE_KFPYTORCH_DATASET`` of each rank contains the path of the directory with
    the files of the data set. In a TrainJob this directory is ``/workspace/dataset``.

    Args:
        uri: ``hf://owner/name`` or ``s3://bucket/prefix``. If the TrainJob has a ``runtime``, also
            ``cache://schema/table``.
        secret: The name of a Secret in the namespace of the task. Its keys become environment variables of
            the initializer (the container that loads the data), such as ``ACCESS_TOKEN``, or
            ``ACCESS_KEY_ID`` and ``SECRET_ACCESS_KEY``.
        env: Environment variables of the initializer, such as ``ENDPOINT``, ``REGION`` or
            ``IGNORE_PATTERNS``. Credentials are an error here, because every user with the right to read the
            job could read them.
    """

    uri: Annotated[str, _build_uri_reader(data_sources.DATASET)]


@dataclass(kw_only=True)
class Model(_Source):
    """A model that Kubeflow Trainer loads before the nodes of a TrainJob start.

    The environment variable ``FLYTE_KFPYTORCH_MODEL`` of each rank contains the path of the directory with
    the files of the model. In a TrainJob this directory is ``/workspace/model``.

    Args:
        uri: ``hf://owner/name`` or ``s3://bucket/prefix``.
        secret: See `Dataset`.
        env: See `Dataset`.
    """

    uri: Annotated[str, _build_uri_reader(data_sources.MODEL)]


def _read_size(value: object) -> object:
    if not isinstance(value, str) or not quantities.parse_quantity(value):
        raise build_invalid_value(value, "must be a size such as '50Gi'")
    return value


@dataclass(kw_only=True)
class Storage(ConfigPart):
    """The volume for a data set and a model.

    Set either ``size``, for a new volume that is deleted with the job, or ``claim``, for an existing volume.

    Args:
        size: The size of a new volume, such as ``"50Gi"``. If the task has several nodes, the storage class
            must support the access mode ``ReadWriteMany``.
        storage_class: The storage class of the new volume. Default: that of the cluster.
        claim: The name of an existing PersistentVolumeClaim in the namespace of the task. Trainer writes the
            files into its directories ``dataset`` and ``model``, where they remain after the job.
    """

    size: Annotated[str | None, _read_size] = None
    storage_class: Annotated[str | None, _read_object_name] = None
    claim: Annotated[str | None, _read_object_name] = None

    def _find_contradictions(self, sound: Set[str]) -> Iterator[ConfigProblem]:
        if "claim" in sound and self.claim is not None:
            given = {name: getattr(self, name) for name in ("size", "storage_class")}
            for name, value in given.items():
                if value is not None:
                    yield ConfigProblem(name, value, "an existing claim has its own; leave it out")
        elif {"claim", "size"} <= sound and self.size is None:
            yield ConfigProblem("size", None, "write a size such as '50Gi', or the name of a claim")


def _build_short_reader(cls: type[ConfigPart], field: str) -> Reader:
    """Return a function that accepts a valid `cls`, or converts text to a `cls` with this text as `field`."""
    read = build_config_reader(cls)
    return lambda value: read(cls(**{field: value}) if isinstance(value, str) else value)


read_dataset: Final = _build_short_reader(Dataset, "uri")
read_model: Final = _build_short_reader(Model, "uri")
read_storage: Final = _build_short_reader(Storage, "size")


def find_contradictions(options: Any) -> Iterator[ConfigProblem]:
    """Yield a problem for each contradiction between data set, model, storage and runtime of a `TrainJob`."""
    has_source = options.dataset is not None or options.model is not None
    if options.storage is None:
        if has_source and options.runtime is None:
            remedy = "dataset and model need a volume; write storage='50Gi' or storage=Storage(claim='...')"
            yield ConfigProblem("storage", None, remedy)
    elif options.runtime is not None or not has_source:
        remedy = "a new volume is only for a dataset or model without a runtime; leave it out"
        yield ConfigProblem("storage", options.storage, remedy)
    uri = options.dataset.uri if options.dataset is not None else ""
    if options.runtime is None and uri.startswith(data_sources.CACHE_SCHEME):
        yield ConfigProblem("dataset.uri", uri, f"{data_sources.CACHE_REFUSAL}; {data_sources.CACHE_REMEDY}")


def check_pod(options: Any) -> Iterator[ConfigProblem]:
    """Yield a problem for the data set and the model of a task that runs in an ordinary pod.

    For an ordinary pod, no data set or model is loaded. `options` is the `TrainJob` of the task, or None.
    """
    for name in data_sources.PATHS:
        if (source := getattr(options, name, None)) is not None:
            remedy = "nnodes=1 is an ordinary pod, for which nothing is loaded; write nnodes='1'"
            yield ConfigProblem(f"train_job.{name}", source.uri, remedy)
