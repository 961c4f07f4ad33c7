"""The tests' own propeller: what FlytePropeller 1.16 does to a connector, by the rules it was seen to follow.

`arrival` makes the requests, `wire` sends them, `attempt` follows one attempt, `execution` goes from attempt
to attempt, `record` is what came of it. Nothing of ours is imported: it is the other side.
"""

from propeller.execution import Execution, Propeller, Settings
from propeller.record import Attempt, Outcome, Shown
from propeller.wire import Wire

__all__ = ["Attempt", "Execution", "Outcome", "Propeller", "Settings", "Shown", "Wire"]
