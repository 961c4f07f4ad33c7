"""Code that runs in a replica, in a pod or in a local run.

`launch`    runs a task: inline, as a local run, or as one node of a job in a cluster
`local_run`     the processes of a local run
`process_supervisor`     the process supervisor; `console` shows the output of the processes
`replica`   one worker: runs the function and records its result or failure
`elastic_agent`     the agent of one node of an elastic job
`outcome` turns the outcome of a run into a value or an exception; `report` describes a failure
"""

from typing import Final

TORCH_IMPORT_ERROR_MESSAGE: Final = "PyTorch is not installed here. Install it with: pip install torch"
