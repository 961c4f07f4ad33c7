"""The table of all emulated operators. No other module imports the operators.

To add an operator, add a folder next to this module and a row here.
"""

from collections.abc import Mapping
from typing import Final

from backend_plugin.core.dialects.table import find_pod_dialect
from backend_plugin.core.reading import get_text_map
from backend_plugin.core.values import Manifest
from backend_plugin.embedded.operators import pytorchjob, trainjob
from backend_plugin.embedded.operators.base import OperatorEmulation

_ROWS: Final = (pytorchjob.OPERATOR, trainjob.OPERATOR)

OPERATORS: Final[Mapping[str, OperatorEmulation]] = {each.dialect.name: each for each in _ROWS}
"""The operators by the kind of their jobs."""


def find_pod_operator(pod: Manifest) -> OperatorEmulation:
    """Return the operator that the labels of a pod identify; the first operator if none matches."""
    labels = get_text_map(pod, "metadata", "labels")
    return OPERATORS.get(find_pod_dialect(labels).name, _ROWS[0])
