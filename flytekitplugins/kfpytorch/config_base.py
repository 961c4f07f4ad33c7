"""The base class of all configs, which checks their fields, and functions that encode the values."""

import inspect
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields
from itertools import chain
from typing import Any, ClassVar

from flytekit import PodTemplate

from flytekitplugins.kfpytorch.problems import (
    ConfigProblem,
    build_invalid_value,
    require_no_problems,
    require_valid,
    suggest_name,
)
from flytekitplugins.kfpytorch.validators import Reader, find_problems, is_list


class Config:
    """The base class of all configs. A config checks its fields when it is constructed.

    Each field has a type ``Annotated[..., reader]``. The reader is a function that checks and converts the
    value (see `validators`).
    A field with the default None also accepts None.
    """

    readers: ClassVar[Mapping[str, Reader]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        found: dict[str, Reader] = {}
        for name, kind in inspect.get_annotations(cls).items():
            reader, *_ = getattr(kind, "__metadata__", (None,))
            if callable(reader):  # A user's own subclass may annotate a field with other metadata.
                found[name] = reader
                cls.__annotations__[name] = kind.__origin__  # `help` shows the type without the reader.
        cls.readers = {**cls.readers, **found}

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Check all fields again, and replace each value by its normalized form.

        Raises:
            ConfigError: If a value is invalid; the error lists all problems.
        """
        require_valid(type(self).__name__, self.problems())

    def problems(self) -> list[ConfigProblem]:
        """Normalize the valid fields in place, and return the problems of all fields. Raise no error."""
        found = {name: self._read_field(name, reader) for name, reader in self.readers.items()}
        sound = {name for name, problems in found.items() if not problems}
        return [
            *chain(*found.values()),
            *self._find_contradictions(sound),
            *find_unknown_fields(type(self), vars(self)),
        ]

    def _read_field(self, name: str, reader: Reader) -> list[ConfigProblem]:
        value = getattr(self, name)
        if value is None and getattr(type(self), name, "no default") is None:
            return []  # A field with the default None accepts None.
        return find_problems(name, lambda read: setattr(self, name, reader(read)), value)

    def _find_contradictions(self, sound: Set[str]) -> Iterator[ConfigProblem]:  # noqa: ARG002
        """Yield a problem for each contradiction between the values of two fields.

        `sound` contains the names of the fields with valid values. Other fields are not compared.
        """
        return iter(())


def find_unknown_fields(cls: type[Config], given: Mapping[Any, object]) -> Iterator[ConfigProblem]:
    """Yield a problem for each name in `given` that is not a field of `cls`."""
    known = [item.name for item in fields(cls)]  # type: ignore[arg-type]
    for name, value in given.items():
        if name not in known:
            message = f"{cls.__name__} has no such field{suggest_name(name, known)}"
            yield ConfigProblem(str(name), value, message)


class ConfigPart(Config):
    """The base class of a config that is the value of a field of another config.

    The construction of a `ConfigPart` with an invalid value raises no error. The outer config raises one
    error, with its own problems and those of its parts.
    """

    def __post_init__(self) -> None:
        self.problems()  # The call normalizes the values.


def build_config_reader(cls: type[Config]) -> Reader:
    """Return a function that normalizes the fields of a valid `cls` in place, and rejects other values."""

    def read(value: object) -> object:
        if not isinstance(value, cls):
            raise build_invalid_value(value, f"must be {cls.__name__}(...)")
        require_no_problems(value.problems())
        return value

    return read


def encode_value(value: Any) -> Any:
    """Convert a value to dicts, lists and scalars. A kubernetes model becomes a dict as in a manifest."""
    fields = read_fields(value)
    if fields is not None:
        return {name: encode_value(item) for name, item in fields.items()}
    return [encode_value(item) for item in value] if is_list(value) else value


def read_fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a `ConfigPart`, a `PodTemplate` or a kubernetes model, except those that are None.

    The keys of a template or model are those of a manifest. A dict is returned unchanged, with all its items.
    For any other value, return None.
    """
    if isinstance(value, ConfigPart):
        fields = vars(value)
    elif isinstance(value, PodTemplate):
        metadata = {name: given for name in ("labels", "annotations") if (given := getattr(value, name))}
        fields = {"metadata": metadata, "spec": value.pod_spec or {}}
    elif hasattr(value, "attribute_map"):
        fields = {key: getattr(value, name) for name, key in value.attribute_map.items()}
    else:
        return value if isinstance(value, Mapping) else None
    return {name: item for name, item in fields.items() if item is not None}
