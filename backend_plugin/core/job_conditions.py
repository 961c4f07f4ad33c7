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
"""A job that runs or has run has at least one of these conditions."""
