"""How a config says that something in it cannot be meant: field, value, what would be right."""

from collections.abc import Sequence
from typing import Final, NamedTuple


class Problem(NamedTuple):
    """One value that cannot be meant: where it stands, what it is, what would be right."""

    path: str
    value: object
    remedy: str

    def within(self, field: str) -> "Problem":
        """Give the same problem, seen from the config that holds `field`."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return self._replace(path=f"{field}{joint}{self.path}")

    def __str__(self) -> str:
        shown = repr(self.value)
        if len(shown) > _SHOWN:
            shown = shown[: _SHOWN - 1] + "…"
        return f"{self.path}={shown}: {self.remedy}"


# A longer value would push the remedy out of sight.
_SHOWN: Final = 80


class Wrong(Exception):
    """A reader's refusal, with one or more problems."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


class ConfigError(ValueError):
    """A config says something that cannot be meant.

    Attributes:
        owner: The class of the config.
        problems: All that is wrong with it, one sentence each: field, value, what would be right.
    """

    def __init__(self, owner: str, problems: Sequence[str]) -> None:
        super().__init__(owner, tuple(problems))
        self.owner = owner
        self.problems = tuple(problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"{self.owner}: {self.problems[0]}"
        return "\n  ".join([f"{self.owner}: {len(self.problems)} problems", *self.problems])


def wrong(value: object, remedy: str) -> Wrong:
    """A refusal of the value itself."""
    return Wrong(Problem("", value, remedy))


def nearest(name: object, known: Sequence[str], cutoff: float = 0.6) -> str:
    """``; did you mean 'x'?``, or nothing when no known name is near."""
    from difflib import get_close_matches  # Needed in messages only.

    folded = {text.casefold(): text for text in known}
    matches = get_close_matches(str(name).casefold(), list(folded), n=1, cutoff=cutoff)
    return f"; did you mean {folded[matches[0]]!r}?" if matches else ""
