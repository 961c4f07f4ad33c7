"""The types of a job's conditions. The reader of each kind of job translates conditions to these types."""

from typing import Final

CREATED: Final = "Created"
SUSPENDED: Final = "Suspended"
RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

ENDS: Final = frozenset({SUCCEEDED, FAILED})
STARTS: Final = frozenset({RUNNING, RESTARTING})
"""The types of the conditions that show that a job runs or has run: such a job has at least one."""
