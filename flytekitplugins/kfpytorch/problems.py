"""Problems of a config: the field, the invalid value and a remedy."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple


class ConfigProblem(NamedTuple):
    """One invalid value of a config: the path of its field, the value and a remedy."""

    path: str
    value: object
    remedy: str

    def __str__(self) -> str:
        shown = repr(self.value)
        if len(shown) > _SHOWN:
            shown = shown[: _SHOWN - 1] + "…"
        return f"{self.path}={shown}: {self.remedy}"


# A longer value would hide the remedy.
_SHOWN: Final = 80


class InvalidValue(Exception):
    """A value of a config is invalid. The error contains one or more problems."""

    def __init__(self, *problems: ConfigProblem) -> None:
        super().__init__(*problems)
        self.problems = problems


class ConfigError(ValueError):
    """A config contains invalid values.

    Attributes:
        owner: The name of the config class.
        problems: One sentence for each problem: field, value, remedy.
    """

    def __init__(self, owner: str, problems: Iterable[ConfigProblem | str]) -> None:
        self.owner = owner
        self.problems = tuple(map(str, problems))
        super().__init__(owner, self.problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"{self.owner}: {self.problems[0]}"
        return "\n  ".join([f"{self.owner}: {len(self.problems)} problems", *self.problems])


def require_valid(owner: str, problems: Iterable[ConfigProblem | str]) -> None:
    """Raise a `ConfigError` with all `problems`, if there are any. `owner` is the config class's name."""
    if found := [*problems]:
        raise ConfigError(owner, found)


def build_invalid_value(value: object, remedy: str) -> InvalidValue:
    """Return an `InvalidValue` error with one problem, which concerns the whole `value`, not a part of it."""
    return InvalidValue(ConfigProblem("", value, remedy))


def require_no_problems(problems: Iterable[ConfigProblem]) -> None:
    """Raise an `InvalidValue` with all `problems`, if there are any."""
    if found := [*problems]:
        raise InvalidValue(*found)


def add_prefix(field: str, problems: Iterable[ConfigProblem]) -> Iterator[ConfigProblem]:
    """Yield each of `problems` with its path prefixed by `field`, the name of the outer field."""
    for problem in problems:
        joint = "." if problem.path and not problem.path.startswith("[") else ""
        yield problem._replace(path=f"{field}{joint}{problem.path}")


def suggest_name(name: object, known: Sequence[str], cutoff: float = 0.6) -> str:
    """Return ``; did you mean 'x'?`` with the most similar name in `known`; empty if none is similar.

    `cutoff` is the minimum similarity, from 0 to 1.
    """
    from difflib import get_close_matches  # Only error messages need this module.

    folded = {text.casefold(): text for text in known}
    matches = get_close_matches(str(name).casefold(), list(folded), n=1, cutoff=cutoff)
    return f"; did you mean {folded[matches[0]]!r}?" if matches else ""
