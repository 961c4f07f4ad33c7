"""What is broken, one row each. The last takes the kind away, and with it all jobs."""

from typing import Final

from broken import flytes, platform, workloads

BREAKS: Final = (*platform.BREAKS, *flytes.BREAKS, *workloads.BREAKS)
