"""The state machines of Trainer 2.3, JobSet 0.12 and the Job controller, as one pure function."""

from typing import Final

from backend_plugin.embedded.operators.base import OperatorEmulation
from backend_plugin.embedded.operators.trainjob.admission import admit_job, admit_runtime, find_runtime
from backend_plugin.embedded.operators.trainjob.job_spec import DIALECT, ROLE
from backend_plugin.embedded.operators.trainjob.pods import build_action_event
from backend_plugin.embedded.operators.trainjob.reconciler import reconcile

OPERATOR: Final = OperatorEmulation(
    dialect=DIALECT,
    admit=admit_job,
    reconcile=reconcile,
    build_action_event=build_action_event,
    host_suffix=rf"-{ROLE}-0-\d{{1,9}}",
    admit_prerequisite=admit_runtime,
    find_prerequisite=find_runtime,
)
