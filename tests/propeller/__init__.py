"""FlytePropeller for tests: the client of `kfpytorch submit`, with recorded and checked calls."""

from propeller.execution import Execution, Outcome, Propeller
from propeller.wire import Wire

__all__ = ["Execution", "Outcome", "Propeller", "Wire"]
