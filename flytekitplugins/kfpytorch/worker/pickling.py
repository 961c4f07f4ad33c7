"""A cloudpickle pickler that keeps file names in code objects, and that supports tensors of all dtypes.

cloudpickle 3.1.3 and newer writes ``<dynamic-code>`` instead of the file name of a code object. torch pickles
a tensor of a newer dtype, such as float8, with an untyped storage, which only `torch.load` can read.
"""

import functools
import io
import operator
import types
from typing import Any, Final

import cloudpickle


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A cloudpickle pickler that keeps file names in code objects, and supports tensors of all dtypes."""

    def reducer_override(self, obj: Any) -> Any:
        """Return the values from which unpickling builds `obj` (see `pickle.Pickler.reducer_override`).

        This class handles code objects, and tensors of newer dtypes. cloudpickle handles all other objects.
        """
        if isinstance(obj, types.CodeType):
            # cloudpickle's own reduction is used, because the arguments differ between Python versions.
            make, args = self.dispatch_table[types.CodeType](obj)
            return _build_code, (obj.co_filename, make, args)
        if (type(obj).__module__, type(obj).__name__) == ("torch.storage", "UntypedStorage"):
            return operator.attrgetter("_untyped_storage"), (_build_typed_storage(obj),)
        if type(obj) is types.FunctionType and (obj.__module__, obj.__name__) == _REBUILD_TENSOR:
            return functools.partial, (_rebuild_tensor,)
        return super().reducer_override(obj)


_REBUILD_TENSOR: Final = ("torch._utils", "_rebuild_tensor_v3")


def _rebuild_tensor(storage: Any, *details: Any) -> Any:
    """Return a tensor of a newer dtype. `details` are the other arguments of torch's rebuild function."""
    import torch

    rebuild: Any = torch._utils._rebuild_tensor_v3  # noqa: SLF001
    return rebuild(_build_typed_storage(storage), *details)


def _build_typed_storage(storage: Any) -> Any:
    """Return a typed storage, which torch can pickle, with the memory of the untyped `storage`."""
    import torch

    typed: Any = torch.storage.TypedStorage
    return typed(wrap_storage=storage, dtype=torch.uint8, _internal=True)


def dumps(value: Any) -> bytes:
    """Return the value pickled by `Pickler`.

    Raises:
        Exception: An object in the value cannot be pickled.
    """
    with io.BytesIO() as file:
        Pickler(file, protocol=5).dump(value)
        return file.getvalue()


def _build_code(file: str, make: Any, args: tuple[Any, ...]) -> types.CodeType:
    code: types.CodeType = make(*args)
    return code.replace(co_filename=file)
