"""Select the lines of the user's code from a stack."""

import contextlib
import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

from kfpytorch_common.causes import Frame

_PLUGIN = str(Path(__file__).parent.parent) + os.sep
_COMMON = f"{os.sep}kfpytorch_common{os.sep}"


def read_user_frames(stack: Iterable[traceback.FrameSummary]) -> tuple[Frame, ...]:
    """Return the frames in the user's files; if there are none, all frames except those of the plugin."""
    return select_user_frames(
        Frame(file=frame.filename, line=frame.lineno or 0, function=frame.name, code=frame.line or "")
        for frame in stack
    )


def select_user_frames(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Return the `frames` in the user's files; if there are none, all `frames` except those of the plugin."""
    known = [frame for frame in frames if not _is_own_file(frame.file)]
    paths = sysconfig.get_paths()
    places = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    places.update(site.getsitepackages(), [sys.base_prefix + "/lib"])
    installed = ("<frozen", *(place + os.sep for place in places))
    return tuple([frame for frame in known if not frame.file.startswith(installed)] or known)


def format_frame(frame: Frame) -> str:
    """Return a frame as ``train.py:7 in train``. The path is relative below the working directory."""
    shown = Path(frame.file)
    with contextlib.suppress(OSError, ValueError):  # The file is elsewhere, or no working directory exists.
        shown = shown.relative_to(Path.cwd())
    return f"{shown}:{frame.line} in {frame.function}"


def _is_own_file(file: str) -> bool:
    return file.startswith((_PLUGIN, "<frozen importlib")) or _COMMON in file or "cloudpickle" in file
