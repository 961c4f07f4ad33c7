"""What a pod's directory holds: all that the server and a shim know of each other.

Lives here: names of files, words of the control pipe. Does not: who may start what; see `pod_directory`.
"""

MARKER = "kfpytorch-pod"
"""An empty file; only a directory that has it is removed as that of a pod."""
LAUNCH = "launch.json"
"""What is to be run; written once, before the shim is started."""
STATE = "state.json"
"""What has become of it; replaced, never changed. No process of the pod exists before this file does."""
LOCK = "lock"
"""Locked for as long as there is a shim."""
WAKE = "wake"
"""A pipe from the shim: it has news, in bytes; its end is the end of the shim."""
CONTROL = "control"
"""A pipe to the shim: orders, one a line."""
COMPLAINTS = "shim.log"
"""What a shim wrote that broke."""
LOGS = "logs"
WORK = "work"
VOLUMES = "volumes"
TERMINATION = "termination"

MARK = "KFPYTORCH_POD"
"""A variable of every process of a pod, ``<uid>/<container>``, to find the ones that got away."""

LONGEST_STATE = 1 << 22
"""Bytes of a state; 1,000 containers with messages of 4 KiB each."""

NEWS_STATE = b"s"
NEWS_LOG = b"l"

TERMINATE = "terminate"
"""With the seconds of grace."""
LOSE = "lose"
"""At once, as a node is lost."""
GATE = "gate"
"""With 1 while the master is ready, and 0."""
WATCH = "watch"
"""With 1 while somebody waits for lines, and 0."""


def log_name(run: int, segment: int) -> str:
    """The file that holds one segment of what a container wrote in one of its runs."""
    return f"{run}.{segment}.log"
