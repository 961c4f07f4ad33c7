"""Reader for the data set, the model and the storage of a TrainJob in a task's custom."""

from collections.abc import Iterator, Mapping

from backend_plugin.core import protojson
from backend_plugin.core.errors import Problem
from backend_plugin.core.job import DataSource, DataStorage
from backend_plugin.core.quantity import InvalidQuantity, parse
from kfpytorch_common import data_sources, labels
from kfpytorch_idl.v1 import task_pb2


def decode_sources(options: task_pb2.TrainJob) -> Mapping[str, DataSource]:
    """Return the data set and the model that the options contain."""
    return {
        kind: DataSource(uri=source.uri, secret=source.secret or None, env=dict(source.env))
        for kind in data_sources.PATHS
        if options.HasField(kind)
        for source in (getattr(options, kind),)
    }


def decode_storage(options: task_pb2.TrainJob) -> DataStorage | None:
    """Return the storage that the options contain; None if they have none."""
    if not options.HasField("storage"):
        return None
    storage = options.storage
    return DataStorage(
        size=storage.size or None,
        storage_class=storage.storage_class or None,
        claim=storage.claim or None,
    )


def check(options: task_pb2.TrainJob, path: str) -> Iterator[Problem]:
    """Yield the problems of the sources and the storage of the options at a path."""
    sources = [kind for kind in data_sources.PATHS if options.HasField(kind)]
    for kind in sources:
        yield from _check_source(getattr(options, kind), kind, f"{path}.{kind}", named=bool(options.runtime))
    if options.HasField("storage"):
        yield from _check_storage(options, f"{path}.storage", used=bool(sources))
    elif sources and not options.runtime:
        remedy = "write a size or the name of a claim"
        yield _problem(
            f"{path}.storage", None, "is missing, and the data set and the model need a volume", remedy
        )


def _check_source(source: task_pb2.DataSource, kind: str, path: str, *, named: bool) -> Iterator[Problem]:
    if remedy := data_sources.find_uri_remedy(kind, source.uri):
        yield _problem(f"{path}.uri", source.uri, "is not the URI of a source that can be loaded", remedy)
    elif source.uri.startswith(data_sources.CACHE_SCHEME) and not named:
        yield _problem(f"{path}.uri", source.uri, data_sources.CACHE_REFUSAL, data_sources.CACHE_REMEDY)
    if source.secret and not labels.is_subdomain(source.secret):
        remedy = f"write {labels.SUBDOMAIN}"
        yield _problem(f"{path}.secret", source.secret, "is not the name of a Secret", remedy)
    if len(source.env) >= data_sources.MOST_VARIABLES:
        remedy = f"write at most {data_sources.MOST_VARIABLES - 1}"
        yield _problem(f"{path}.env", len(source.env), "variables are more than Trainer accepts", remedy)
    for name, value in sorted(source.env.items()):
        if remedy := data_sources.find_variable_remedy(name, value):
            # The value may be a credential.
            yield _problem(f"{path}.env", name, "is not a variable that an initializer can have", remedy)


def _check_storage(options: task_pb2.TrainJob, path: str, *, used: bool) -> Iterator[Problem]:
    storage = options.storage
    if options.runtime or not used:
        message = "belongs to the named runtime" if options.runtime else "has no data set or model"
        yield _problem(path, "{...}", message, "leave it out")
        return
    for field, key in (("claim", "claim"), ("storage_class", "storageClass")):
        name = getattr(storage, field)
        if name and not labels.is_subdomain(name):
            yield _problem(f"{path}.{key}", name, "is not the name of an object", f"write {labels.SUBDOMAIN}")
    if bool(storage.claim) == bool(storage.size):
        remedy = "write one of size and claim"
        yield _problem(f"{path}.size", storage.size, "must be set, unless a claim exists", remedy)
    elif storage.size and not _is_size(storage.size):
        yield _problem(f"{path}.size", storage.size, "is not a size", "write a quantity such as 50Gi")
    if storage.claim and storage.storage_class:
        remedy = "leave it out"
        yield _problem(f"{path}.storageClass", storage.storage_class, "is fixed by the claim", remedy)


def _is_size(text: str) -> bool:
    try:
        return parse(text).nano > 0
    except InvalidQuantity:
        return False


def _problem(field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=field, value=protojson.format_value(value), message=message, remedy=remedy)
