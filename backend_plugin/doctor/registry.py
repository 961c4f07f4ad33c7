"""The table of all checks. Findings of one severity are reported in the order of the table."""

from typing import Final

from backend_plugin.doctor.check import Check
from backend_plugin.doctor.checks import (
    api_server,
    connector,
    flyte,
    gang,
    job,
    network,
    nodes,
    queues,
    quotas,
    references,
    security,
    templates,
)
from backend_plugin.doctor.operators import table as operators

CHECKS: Final[tuple[Check, ...]] = (
    *api_server.CHECKS,
    *operators.CHECKS,
    *gang.CHECKS,
    *queues.CHECKS,
    *job.CHECKS,
    *templates.CHECKS,
    *quotas.CHECKS,
    *nodes.CHECKS,
    *network.CHECKS,
    *security.CHECKS,
    *references.CHECKS,
    *flyte.CHECKS,
    *connector.CHECKS,
)
