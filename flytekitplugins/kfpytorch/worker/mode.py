"""What was said about local runs: on the command line, and in FLYTE_KFPYTORCH_LOCAL and _VERBOSE."""

import difflib
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flytekitplugins.kfpytorch.worker.topology import OVERRIDE
from kfpytorch_common import prestart

VERBOSE = "FLYTE_KFPYTORCH_VERBOSE"


class BadMode(ValueError):
    """FLYTE_KFPYTORCH_LOCAL says something that cannot be meant."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """How a local run is meant."""

    inline: bool
    """Call the function in this process, in a world of one."""
    ranks: int | None = None
    """The most ranks that are wanted; None leaves it to the machine."""


def chosen(env: Mapping[str, str], *, replicas_by_default: bool) -> Mode:
    """Read FLYTE_KFPYTORCH_LOCAL: ``replicas``, ``inline`` or a number of ranks.

    Raises:
        BadMode: It says something else.
    """
    said = env.get(OVERRIDE, "").strip().lower()
    if not said:
        return Mode(inline=not replicas_by_default)
    if said in {"inline", "replicas"}:
        return Mode(inline=said == "inline")
    if said.isdecimal() and int(said) > 0:
        return Mode(inline=False, ranks=int(said))
    near = difflib.get_close_matches(said, ["inline", "replicas"], n=1)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    raise BadMode(
        f"{OVERRIDE}={env[OVERRIDE]!r} must be 'replicas', 'inline' or a number of ranks above 0{guess}"
    )


def verbose(env: Mapping[str, str]) -> bool:
    """Whether all ranks are shown: ``pyflyte -v``, or FLYTE_KFPYTORCH_VERBOSE=1."""
    said = env.get(VERBOSE, "").strip().lower()
    if said:
        return said not in {"0", "false", "no"}
    return bool(getattr(_pyflyte_run(), "verbose", 0))


def under_pyflyte_run() -> bool:
    """Whether `pyflyte run` without --remote is what runs now."""
    if threading.current_thread() is not threading.main_thread():
        # flytekit runs an eager workflow in a thread, and click knows its command in the main one only.
        return prestart.script_of(sys.argv) is not None
    return _pyflyte_run() is not None


def _pyflyte_run() -> Any:
    """The parameters of the `pyflyte run` command in progress on this machine, or None."""
    click = sys.modules.get("click")
    command = click.get_current_context(silent=True) if click else None
    while command is not None:
        # flytekit keeps them as the object of the command; importing its class would import its CLI.
        if type(command.obj).__name__ == "RunLevelParams":
            return None if command.obj.is_remote else command.obj
        command = command.parent
    return None
