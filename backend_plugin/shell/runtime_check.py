"""The check that the runtime exists that the author of a task names, before a job is created."""

import logging

from backend_plugin.core.dialects import table
from backend_plugin.core.errors import InvalidTask
from backend_plugin.core.job import Plan
from backend_plugin.shell.cluster import ClusterUnavailable, Inventory

log = logging.getLogger(__name__)


async def require_runtime(inventory: Inventory, planned: Plan) -> None:
    """Return if the job of a plan can use its runtime, or if the runtimes are unknown.

    Raises:
        InvalidTask: If the runtime does not exist, or has no container for the task.
    """
    support = table.get_dialect(planned.dialect).runtimes
    # A job with prerequisites has a runtime of its own.
    if support is None or planned.prerequisites:
        return
    try:
        found = await inventory.list_runtimes()
    except ClusterUnavailable as error:
        # The webhook rejects a job without a runtime, too.
        log.warning("the runtimes are unknown: %s", error)
        return
    if problems := [*support.check_reference(planned.job, found)]:
        raise InvalidTask(*problems)
