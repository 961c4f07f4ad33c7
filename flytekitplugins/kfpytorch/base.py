"""How a config checks itself; the base of every class that an author writes.

Which fields there are is in `config` and `extension`; what a single value must look like in `checks`.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import fields
from itertools import chain
from typing import Any, ClassVar

from flytekitplugins.kfpytorch.checks import Reader
from flytekitplugins.kfpytorch.problems import ConfigError, Problem, Wrong, nearest, wrong


class Config:
    """A config that checks itself when it is constructed; the base of those below."""

    readers: ClassVar[Mapping[str, Reader]]

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Check again, after changes; values written in another form are put in ours.

        Raises:
            ConfigError: If a value cannot be meant. It names the field, the value and what would be
                right, for all that are wrong.
        """
        if problems := self.problems():
            raise ConfigError(type(self).__name__, [str(problem) for problem in problems])

    def problems(self) -> list[Problem]:
        """All that is wrong, without raising."""
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
        """What does not go together; `sound` names the fields that are right by themselves."""
        return iter(())


def unknown(cls: type[Config], said: Mapping[Any, object]) -> Iterator[Problem]:
    """Names that are no fields: keys of a dict, or attributes assigned with a typo."""
    known = [item.name for item in fields(cls)]  # type: ignore[arg-type]
    for name, value in said.items():
        if name not in known:
            yield Problem(str(name), value, f"{cls.__name__} has no such field{nearest(name, known)}")


def part(cls: type[Config]) -> Reader:
    """Read a config inside another."""

    def read(value: object) -> object:
        if not isinstance(value, cls):
            raise wrong(value, f"must be {cls.__name__}(...)")
        if problems := value.problems():
            raise Wrong(*problems)
        return value

    return read
