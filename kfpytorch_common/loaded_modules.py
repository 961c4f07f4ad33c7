"""Read `sys.modules` without running code of the modules.

An entry may be a lazy module, which loads itself (and may fail) when an attribute is read, or another
object that a library put there.
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
    """Return the source file of each module that has one, by module name.

    An entry with a key that differs from the module's name is skipped. ``sys.modules`` contains extension
    modules of scipy also under their last name, and importlib's modules also under an old name.
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
