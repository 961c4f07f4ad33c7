"""The state machine of the training operator, as a pure function from observed objects to actions."""

from typing import Final

from backend_plugin.core.dialects.pytorchjob.resource import INIT_CONTAINER
from backend_plugin.embedded.operators.base import OperatorEmulation
from backend_plugin.embedded.operators.pytorchjob.admission import admit_job
from backend_plugin.embedded.operators.pytorchjob.job_spec import DIALECT, MASTER
from backend_plugin.embedded.operators.pytorchjob.objects import build_action_event
from backend_plugin.embedded.operators.pytorchjob.reconciler import reconcile

OPERATOR: Final = OperatorEmulation(
    dialect=DIALECT,
    admit=admit_job,
    reconcile=reconcile,
    build_action_event=build_action_event,
    gate=INIT_CONTAINER,
    leader=MASTER.lower(),
)
