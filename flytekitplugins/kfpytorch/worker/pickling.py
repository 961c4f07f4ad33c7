"""A cloudpickle pickler that keeps file names in code objects.

cloudpickle 3.1.3 and newer writes ``<dynamic-code>`` instead of the file name of every code object that it
pickles by value. Tracebacks, debuggers and torch's compiler need the real name.
"""

import io
import types
from typing import Any

import cloudpickle


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A cloudpickle pickler that keeps the file name of each code object."""

    def reducer_override(self, obj: Any) -> Any:
        """Reduce a code object with its file name, and any other value as cloudpickle does."""
        if isinstance(obj, types.CodeType):
            # cloudpickle's own reduction is used, because the arguments differ between Python versions.
            make, args = self.dispatch_table[types.CodeType](obj)
            return _build_code, (obj.co_filename, make, args)
        return super().reducer_override(obj)


def dumps(value: Any) -> bytes:
    """Return the value pickled by cloudpickle; its code objects keep their file names.

    Raises:
        Exception: An exception that an object of the value raises while it is pickled.
    """
    with io.BytesIO() as file:
        Pickler(file, protocol=5).dump(value)
        return file.getvalue()


def _build_code(file: str, make: Any, args: tuple[Any, ...]) -> types.CodeType:
    code: types.CodeType = make(*args)
    return code.replace(co_filename=file)
