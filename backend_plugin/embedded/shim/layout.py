"""The files in the directory of a pod and the messages between the server and the pod's shim."""

MARKER = "kfpytorch-pod"
"""An empty file that marks the directory of a pod. Only a directory with this file is removed."""
LAUNCH = "launch.json"
"""The file with the configuration of the shim, written once before the shim starts."""
STATE = "state.json"
"""The file with the state of the pod, replaced as a whole. No process of the pod starts before it exists."""
LOCK = "lock"
"""A file that is locked while the shim runs."""
WAKE = "wake"
"""A pipe from the shim with one byte per notification. It is closed when the shim ends."""
CONTROL = "control"
"""A pipe to the shim with one command per line."""
COMPLAINTS = "shim.log"
"""The file with the standard output and error of the shim; empty unless the shim fails."""
LOGS = "logs"
WORK = "work"
VOLUMES = "volumes"
TERMINATION = "termination"

MARK = "KFPYTORCH_POD"
"""An environment variable of every process of a pod. Its value, ``<pod uid>/<container>``, identifies the pod
and the container of a process whose parent has ended."""

LONGEST_STATE = 1 << 22
"""The maximum size of the state file in bytes: 1,000 containers with messages of 4 KiB each."""

UPDATE_STATE = b"s"
UPDATE_LOG = b"l"

TERMINATE = "terminate"
"""The command to terminate the pod. Its argument is the grace period in seconds."""
EXPIRE = "expire"
"""The command to end the pod within its own grace period, as if its deadline had passed."""
LOSE = "lose"
"""The command to kill the pod immediately, as if its node had failed."""
GATE = "gate"
"""The command to end the init container in which the pod waits for the leader of its job."""
WATCH = "watch"
"""The command to start (argument 1) or stop (argument 0) notifications about new log lines."""


def format_log_name(run: int, segment: int) -> str:
    """Return the name of the file for one log segment of a container run."""
    return f"{run}.{segment}.log"
