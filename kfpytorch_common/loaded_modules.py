"""Read `sys.modules` without running code of the modules.

An entry of `sys.modules` may be a lazy module, which loads itself (and may fail) when an attribute is read.
It may also be an object other than a module, if a library has put such an object into `sys.modules`.
"""

import sys
from types import ModuleType
from typing import Any, Final

_NAMESPACE: Final = vars(ModuleType)["__dict__"].__get__


def find_loaded(name: str) -> Any:
    """Return the module `name` if it is loaded; None if it is absent, or lazy and not loaded."""
    module = sys.modules.get(name)
    # A lazy module of importlib has a different class until it is loaded.
    return module if type(module) is ModuleType else None


def list_source_files() -> dict[str, str]:
    """Return a dict from the name of each loaded module that has a source file to this file.

    An entry of ``sys.modules`` is skipped if its key differs from the module's name. For example,
    ``sys.modules`` contains extension modules of scipy a second time, under the last part of their name.
    """
    files: dict[str, str] = {}
    # The copy is atomic: another thread may import a module meanwhile.
    for name, module in sys.modules.copy().items():
        if not issubclass(type(module), ModuleType):
            continue
        namespace = _NAMESPACE(module)
        file = namespace.get("__file__")
        if type(name) is type(file) is str and namespace.get("__name__") == name:
            files[name] = file
    return files
