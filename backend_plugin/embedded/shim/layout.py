"""The files in the directory of a pod and the messages between the server and the pod's shim."""

MARKER = "kfpytorch-pod"
"""An empty file that marks the directory of a pod. Only a directory with this file is removed."""
LAUNCH = "launch.json"
"""The configuration of the shim, written once before the shim starts."""
STATE = "state.json"
"""The state of the pod, replaced as a whole. No process of the pod starts before this file exists."""
LOCK = "lock"
"""A file that is locked while the shim runs."""
WAKE = "wake"
"""A pipe from the shim with one byte per notification. It is closed when the shim ends."""
CONTROL = "control"
"""A pipe to the shim with one command per line."""
COMPLAINTS = "shim.log"
"""The standard output and error of the shim; empty unless the shim fails."""
LOGS = "logs"
WORK = "work"
VOLUMES = "volumes"
TERMINATION = "termination"

MARK = "KFPYTORCH_POD"
"""An environment variable of every process of a pod. Its value ``<uid>/<container>`` identifies orphans."""

LONGEST_STATE = 1 << 22
"""The maximum size of the state in bytes: 1,000 containers with messages of 4 KiB each."""

UPDATE_STATE = b"s"
UPDATE_LOG = b"l"

TERMINATE = "terminate"
"""Terminate the pod. The argument is the grace period in seconds."""
EXPIRE = "expire"
"""End the pod within its own grace period, as if its deadline had passed."""
LOSE = "lose"
"""Kill the pod immediately, as if its node had failed."""
GATE = "gate"
"""Open the gate: end the init container in which the pod waits for the leader of its job."""
WATCH = "watch"
"""Notify about new log lines. The argument is 1 while a client follows the log, else 0."""


def format_log_name(run: int, segment: int) -> str:
    """Return the name of the file for one log segment of a container run."""
    return f"{run}.{segment}.log"
