"""The base class of all configs, which checks the fields of a config."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import fields
from itertools import chain
from typing import Any, ClassVar

from flytekitplugins.kfpytorch.checks import Reader
from flytekitplugins.kfpytorch.problems import ConfigError, Problem, Wrong, nearest, wrong


class Config:
    """The base class of all configs. A config checks its fields when it is constructed."""

    readers: ClassVar[Mapping[str, Reader]]

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Check all fields again, and replace each value by its normalized form.

        Raises:
            ConfigError: If a value is invalid. The message lists the field, the value and a remedy for each
                problem.
        """
        if problems := self.problems():
            raise ConfigError(type(self).__name__, [str(problem) for problem in problems])

    def problems(self) -> list[Problem]:
        """Normalize the fields, and return all problems without raising."""
        found = {name: self._read(name, reader) for name, reader in self.readers.items()}
        sound = {name for name, problems in found.items() if not problems}
        return [*chain(*found.values()), *self._contradictions(sound), *unknown(type(self), vars(self))]

    def _read(self, name: str, reader: Reader) -> list[Problem]:
        try:
            setattr(self, name, reader(getattr(self, name)))
        except Wrong as refusal:
            return [problem.within(name) for problem in refusal.problems]
        return []

    def _contradictions(self, sound: Set[str]) -> Iterator[Problem]:  # noqa: ARG002
        """Yield the contradictions between fields; `sound` contains the names of the valid fields."""
        return iter(())


class ConfigPart(Config):
    """The base class of configs that are fields of another one, which reports their problems with its own."""

    def __post_init__(self) -> None:
        self.problems()  # Normalizes the values.


def unknown(cls: type[Config], said: Mapping[Any, object]) -> Iterator[Problem]:
    """Yield a problem for each name that is not a field: a key of a dict, or a misspelled attribute."""
    known = [item.name for item in fields(cls)]  # type: ignore[arg-type]
    for name, value in said.items():
        if name not in known:
            yield Problem(str(name), value, f"{cls.__name__} has no such field{nearest(name, known)}")


def part(cls: type[Config]) -> Reader:
    """Return a reader for a field that contains another config."""

    def read(value: object) -> object:
        if not isinstance(value, cls):
            raise wrong(value, f"must be {cls.__name__}(...)")
        if problems := value.problems():
            raise Wrong(*problems)
        return value

    return read
