"""A model of FlytePropeller 1.16 for tests: it calls a connector by the rules that the real one follows.

`arrival` builds requests, `wire` sends them, `attempt` follows one attempt, `execution` runs all attempts,
and `record` has the results. It imports none of our code, because it represents the other side.
"""

from propeller.execution import Execution, Propeller
from propeller.record import Attempt, Outcome, Shown
from propeller.wire import Wire

__all__ = ["Attempt", "Execution", "Outcome", "Propeller", "Shown", "Wire"]
