"""Transfer the result of rank 0: the value, its decks and its metadata."""

import contextlib
import ctypes
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flytekitplugins.kfpytorch.worker import pickling

if TYPE_CHECKING:
    from flytekit import Deck
    from flytekit.core.context_manager import OutputMetadata

FILE_NAME = "result.pkl"

# Below this size, a copy is cheaper than a file.
_LARGE = 1 << 20


class ElasticWorkerResult(NamedTuple):
    """The result of one worker, with the class name and the fields of flytekit's own plugin."""

    return_value: Any
    decks: "list[Deck]"
    om: "OutputMetadata | None" = None
    """The metadata of the returned object (artifacts), or None."""


def save(result: Any, directory: Path) -> None:
    """Write `result` into `directory` for `load`.

    Raises:
        Exception: An exception that pickling the value raises.
    """
    with (directory / (FILE_NAME + ".part")).open("wb") as file:
        _Pickler(file, directory).dump(result)
    (directory / (FILE_NAME + ".part")).rename(directory / FILE_NAME)


def load(directory: Path) -> Any:
    """Return the result that `save` wrote into `directory`.

    The files of large buffers are mapped into memory and then removed.
    """
    try:
        with (directory / FILE_NAME).open("rb") as file:
            return pickle.load(file)  # noqa: S301 - written by a process of this run.
    finally:
        _maps.clear()


class _Pickler(pickling.Pickler):
    def __init__(self, file: Any, directory: Path) -> None:
        super().__init__(file, protocol=5, buffer_callback=None)
        self._directory = directory
        self._storages: dict[tuple[int, int], tuple[str, int]] = {}

    def reducer_override(self, obj: Any) -> Any:
        kind = (type(obj).__module__, type(obj).__name__)
        if kind == ("torch.storage", "TypedStorage"):
            memory = obj._untyped_storage  # noqa: SLF001 - `untyped()` prints a warning to the user.
            if memory.device.type == "cpu" and memory.nbytes() >= _LARGE:
                return _load_storage, (*self._store_shared(memory), obj.dtype)
        is_buffer = kind == ("numpy", "ndarray") and obj.flags.c_contiguous and not obj.dtype.hasobject
        if is_buffer and obj.nbytes >= _LARGE:
            path = _store_buffer(self._directory, obj.reshape(-1).view("u1").data)
            return _load_array, (path, obj.dtype, obj.shape)
        return super().reducer_override(obj)

    def _store_shared(self, memory: Any) -> tuple[str, int]:
        """Write a torch storage to a file, and return the path and size of the file.

        All tensors that are views of one storage get the same file.
        """
        key = (memory.data_ptr(), memory.nbytes())
        if key not in self._storages:
            view = (ctypes.c_ubyte * memory.nbytes()).from_address(memory.data_ptr())
            path = _store_buffer(self._directory, memoryview(view).cast("B"))
            self._storages[key] = (path, memory.nbytes())
        return self._storages[key]


def _store_buffer(directory: Path, data: memoryview) -> str:
    """Write `data` to a new file and return its path.

    The file is in `directory`, or in the temporary directory if `directory` has no space.
    """
    for place in (directory, None):
        handle, path = tempfile.mkstemp(prefix="kfpytorch-", suffix=".buffer", dir=place)
        with contextlib.suppress(OSError), os.fdopen(handle, "wb", buffering=0) as file:
            left = data
            while left:
                left = left[file.write(left) :]
            return path
        Path(path).unlink()
    raise OSError("there is no space for the result, in shared memory or in the temporary directory")


_maps: dict[str, Any] = {}


def _map_once(path: str, make: Callable[[], Any]) -> Any:
    """Return the memory map of a file. The first call creates the map by `make`, and deletes the file."""
    if path not in _maps:
        _maps[path] = make()
        Path(path).unlink()
    return _maps[path]


def _load_storage(path: str, size: int, dtype: Any) -> Any:
    import torch

    # A private mapping: pages are copied only when the receiver writes to them.
    memory = _map_once(path, lambda: torch.UntypedStorage.from_file(path, False, size))  # noqa: FBT003
    typed: Any = torch.storage.TypedStorage
    return typed(wrap_storage=memory, dtype=dtype, _internal=True)


def _load_array(path: str, dtype: Any, shape: tuple[int, ...]) -> Any:
    import numpy as np

    def map_file() -> Any:
        with Path(path).open("r+b") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    return np.frombuffer(_map_once(path, map_file), dtype=dtype).reshape(shape)
