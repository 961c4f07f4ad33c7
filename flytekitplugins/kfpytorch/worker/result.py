"""Transfer the result of rank 0 to the calling process: the value, its Flyte decks and its metadata."""

import ctypes
import functools
import io
import mmap
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flytekitplugins.kfpytorch.worker import pickling

if TYPE_CHECKING:
    from flytekit import Deck
    from flytekit.core.context_manager import OutputMetadata

FILE_NAME = "result.pkl"

# In bytes. A smaller buffer is copied into the pickle, which is cheaper than mapped pages of its own.
_LARGE = 1 << 20
_ALIGNMENT = 64


class ElasticWorkerResult(NamedTuple):
    """The result of one worker, with the class name and the fields of flytekit's own plugin."""

    return_value: Any
    decks: "list[Deck]"
    om: "OutputMetadata | None" = None
    """Flyte's metadata of the returned value, such as that of an artifact; None if there is none."""


def save(result: Any, directory: Path, workspace: Path) -> None:
    """Write `result` for `load` into `directory`, or into `workspace` if `directory` has too little space.

    Raises:
        Exception: An object in the result cannot be pickled.
    """
    content = io.BytesIO()
    large: list[memoryview] = []

    def keep_small(buffer: pickle.PickleBuffer) -> bool:
        if (data := buffer.raw()).nbytes >= _LARGE:
            large.append(data)
        return data.nbytes < _LARGE

    pickler = _Pickler(content, protocol=5, buffer_callback=keep_small)
    pickler.dump(result)  # The pickler refers to the owners of the memory in `large` until it is written.
    parts = [content.getbuffer(), *large]
    sizes = [part.nbytes for part in parts]
    has_room = shutil.disk_usage(directory).free > sum(sizes) + _LARGE
    with tempfile.NamedTemporaryFile(dir=directory if has_room else workspace, delete=False) as file:
        pickle.dump(sizes, file)
        for part in parts:
            file.seek(-file.tell() % _ALIGNMENT, os.SEEK_CUR)
            file.write(part)
    (directory / FILE_NAME).symlink_to(file.name)


def load(directory: Path) -> Any:
    """Return the result that `save` wrote. Its large arrays and tensors are memory-mapped, not copied."""
    path = (directory / FILE_NAME).resolve()
    with path.open("rb") as file:
        sizes = pickle.load(file)  # noqa: S301 - written by a process of this run.
        end = file.tell()
        # A private mapping: pages are copied only when the receiver writes to them.
        memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    path.unlink()
    parts = []
    for size in sizes:
        start = end + -end % _ALIGNMENT
        end = start + size
        parts.append(memory[start:end])
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301


class _Pickler(pickling.Pickler):
    """Pickles the memory of large tensors as out-of-band buffers, as NumPy does for its arrays."""

    def reducer_override(self, obj: Any) -> Any:
        kind = (type(obj).__module__, type(obj).__name__)
        # `_untyped_storage`, because `untyped()` prints a warning to the user.
        if kind == ("torch.storage", "TypedStorage") and _is_large(obj._untyped_storage):  # noqa: SLF001
            typed: Any = type(obj)
            memory = obj._untyped_storage  # noqa: SLF001
            return functools.partial(typed, wrap_storage=memory, dtype=obj.dtype, _internal=True), ()
        if kind == ("torch.storage", "UntypedStorage") and _is_large(obj):
            array = (ctypes.c_ubyte * obj.nbytes()).from_address(obj.data_ptr())
            return _build_storage, (pickle.PickleBuffer(array),)
        return super().reducer_override(obj)


def _is_large(storage: Any) -> bool:
    return bool(storage.device.type == "cpu" and storage.nbytes() >= _LARGE)


def _build_storage(buffer: Any) -> Any:
    import torch

    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
