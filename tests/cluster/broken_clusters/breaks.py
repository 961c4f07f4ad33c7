"""The table of breaks, one row each. The last one deletes the CRD, and with it all jobs."""

from typing import Final

from broken_clusters import flytes, platform, workloads

BREAKS: Final = (*platform.BREAKS, *flytes.BREAKS, *workloads.BREAKS)
