"""Why a replica failed: one vocabulary, and the choice of the first among many failures."""

import enum
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final


class Cause(enum.Enum):
    """The words that messages, metrics, events, exit codes and documentation share."""

    USER_ERROR = "user-error"
    OOM_HOST = "oom-host"
    OOM_GPU = "oom-gpu"
    NCCL_TIMEOUT = "nccl-timeout"
    HANG = "hang"
    PREEMPTED = "preempted"
    NODE_LOST = "node-lost"
    IMAGE = "image"
    UNSCHEDULABLE = "unschedulable"
    QUOTA = "quota"
    QUEUE = "queue"
    CONFIG = "config"
    INFRA = "infra"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One line of a traceback."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How one replica ended, as far as it could say so itself."""

    rank: int | None
    """Global rank; None when it failed before it had one."""
    replica: str
    """The operator's name for it (``worker-0``), or ``node 1`` for an elastic agent's node."""
    exit_code: int
    """As `subprocess` writes it: negative for a signal."""
    time_ns: int
    """When it failed, by the replica's own clock in nanoseconds since the epoch."""
    pid: int = 0
    local_rank: int | None = None
    exception: str = ""
    """The exception's class; empty when the process died without a word."""
    message: str = ""
    """What the exception said; of a process without one, the last words that it left."""
    frames: tuple[Frame, ...] = ()
    """Innermost last."""
    traceback: str = ""
    from_torch: bool = False
    """The exception was raised inside torch, not by the user's own code."""
    recoverable: bool = False
    waiting: bool = False
    """When it was stopped, it was waiting for its peers inside torch.distributed."""
    stopped: bool = False
    """It was running well until it was stopped because of another's failure."""

    @property
    def signal(self) -> str:
        """The signal's name that ended the process, or an empty string."""
        if self.exit_code >= 0:
            return ""
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


# A rank that loses its peer, or waits for one that never comes, says so in these words
# (gloo, NCCL, TCPStore and c10d of torch 2.x).
_CONSEQUENCE: Final = re.compile(
    r"connection (closed|reset|refused|was closed)|socket (closed|timeout)|broken pipe|read error|"
    r"recvvalue failed|failed to recv|sendbytes failed|writev? \[|readall|remote process exited|"
    r"ncclremoteerror|ncclsystemerror|unhandled system error|"
    r"timed out (after \d+ ?(seconds|ms)? )?(waiting|while trying to connect)|timed out waiting|wait timeout|"
    r"watchdog caught collective|collective operation timeout|"
    r"store is down|broken ?barrier|application timeout caused pair closure",
    re.IGNORECASE,
)
_PEER_EXCEPTIONS: Final = frozenset(
    {"DistNetworkError", "DistStoreError", "DistBackendError", "ConnectionResetError", "BrokenPipeError",
     "ConnectionRefusedError", "EOFError", "RuntimeError", "TimeoutError", "DistError"}
)  # fmt: skip


def is_consequence(failure: Failure) -> bool:
    """Whether a failure only tells of a peer's: a lost connection, a broken collective."""
    name = failure.exception.rpartition(".")[2]
    # A DataLoader raises again, from torch, what the user's own code raised in its worker.
    named = failure.from_torch and name in _PEER_EXCEPTIONS and "in DataLoader worker" not in failure.message
    return named and _CONSEQUENCE.search(failure.message) is not None


def root_cause(failures: Iterable[Failure]) -> Failure:
    """The failure that the others follow from.

    A death without a word first (nobody's error makes a peer vanish), then errors that are not
    consequences, then the earliest by nanosecond.

    Raises:
        ValueError: There is none to choose from.
    """
    return min(failures, key=_order)


def _order(failure: Failure) -> tuple[int, int]:
    if failure.stopped:
        return 3, failure.time_ns
    if not failure.exception:
        return 0, failure.time_ns
    return (2 if is_consequence(failure) else 1), failure.time_ns


# RMM and thrust tell of a GPU's memory in a std::bad_alloc, so this is looked for before _REFUSED_MEMORY.
_GPU_MEMORY: Final = re.compile(
    r"(cuda|hip)( error:)? out of memory|outofmemoryerror|cudaErrorMemoryAllocation", re.IGNORECASE
)
# The class with which it begins: numpy's and pyarrow's are subclasses, and a message may name any.
_REFUSED_MEMORY: Final = re.compile(
    r"^[\w.]*MemoryError\b|DefaultCPUAllocator: (can't|not enough)|\bstd::bad_alloc\b|"
    r"\[Errno 12\]|Cannot allocate memory \(12\)"
)
_COLLECTIVE: Final = re.compile(
    r"watchdog caught collective|nccl[^:]* operation timed out|collective timed out", re.IGNORECASE
)
_WAITING: Final = re.compile(r"timed out|timeout", re.IGNORECASE)

_BY_WORDS: Final[tuple[tuple[re.Pattern[str], Cause], ...]] = (
    (_GPU_MEMORY, Cause.OOM_GPU),
    (_REFUSED_MEMORY, Cause.OOM_HOST),
    (_COLLECTIVE, Cause.NCCL_TIMEOUT),
)
"""The first that applies."""

# Of last words, which may be the end of any log, only what ended the process: C++'s std::terminate, and
# torchrun on the first of its own to fail; what ended its others may have been torchrun itself.
_ENDED: Final = re.compile(
    r"terminate called after throwing an instance of [\s\S]{0,500}|"
    r"Root Cause \(first observed failure\):[\s\S]{0,2000}"
)


def _said(failure: Failure) -> str:
    """What tells of its cause: its exception, or the end in its last words."""
    if failure.exception:
        return f"{failure.exception} {failure.message}"
    return "\n".join(_ENDED.findall(failure.message))


# How torch tells of a process that a rank, or torchrun, had started: its DataLoader, its `spawn`, its agent.
_OWN_PROCESS: Final = re.compile(
    r"DataLoader worker \(pid \d+\) is killed by signal: (?P<described>[A-Z][a-z ]+)|"
    r"process \d+ terminated with signal (?P<named>SIG[A-Z0-9]+)|"
    r"Root Cause \(first observed failure\):[\s\S]{0,1000}?exitcode {1,20}: -(?P<number>\d{1,2}) \(pid: "
)
# As strsignal(3) describes them.
_DESCRIBED: Final = {
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
# Of a DataLoader it is raised from what its worker died of, where that is known.
_LOST_PROCESS: Final = re.compile(
    r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly|^[\w.]*BrokenProcessPool\b"
)


def _signal_within(failure: Failure) -> str:
    """The signal's name that ended a process which the failed one had started, or an empty string."""
    said = _said(failure)
    ended = _OWN_PROCESS.search(failure.traceback if _LOST_PROCESS.search(said) else said)
    if ended is None:
        return ""
    if ended["number"]:
        return replace(failure, exit_code=-int(ended["number"])).signal
    return ended["named"] or _DESCRIBED.get(ended["described"], "")


def is_unexplained(failure: Failure) -> bool:
    """Whether it tells that a process which it had started is gone, and nothing of why."""
    return _LOST_PROCESS.search(_said(failure)) is not None and not _signal_within(failure)


def classify(failure: Failure) -> Cause:
    """The word for a failure of a process; what only a cluster can know is not guessed."""
    said = _said(failure)
    for words, cause in _BY_WORDS:
        if words.search(said):
            return cause
    if "SIGKILL" in (failure.signal, _signal_within(failure)):
        return Cause.OOM_HOST
    if failure.exception == "NobodyCame" or (is_consequence(failure) and _WAITING.search(failure.message)):
        return Cause.HANG
    if failure.signal == "SIGTERM":
        return Cause.PREEMPTED
    return Cause.USER_ERROR


REMEDIES: Final[dict[Cause, str]] = {
    Cause.OOM_GPU: "lower the batch size, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    Cause.OOM_HOST: "killed from outside, most often for lack of memory: ask for more, or load less per rank",
    Cause.NCCL_TIMEOUT: "a rank came too late to a collective; TORCH_NCCL_TRACE_BUFFER_SIZE=2000 tells which",
    Cause.HANG: "all ranks must call the same collective; a rank that comes late needs a longer timeout",
    Cause.PREEMPTED: "stopped from outside; save checkpoints and set retries to go on from them",
}
"""What a person can do, in one sentence; a cause that speaks for itself has none."""

CLUSTER_REMEDIES: Final[dict[Cause, str]] = {
    Cause.PREEMPTED: "stopped to make room for others; save checkpoints and set retries to go on from them",
    Cause.NODE_LOST: "its node went away; save checkpoints and set retries to go on from them",
    Cause.IMAGE: "check the image's name and tag, and that the nodes may pull it",
    Cause.UNSCHEDULABLE: "ask for less, or for what the nodes have; `kubectl get nodes` shows what that is",
    Cause.QUOTA: "the namespace's ResourceQuota is too small for it: ask for less, or for a larger quota",
    Cause.QUEUE: "it waits its turn; the queue's quota and what is ahead of it decide how long",
    Cause.CONFIG: "the task asks for something that this cluster does not have or allow; change the task",
    Cause.INFRA: "not the task's fault; if it happens again, show this to whoever runs the cluster",
}
"""The same for what only a cluster can know."""

_CRASHES: Final = {
    "SIGSEGV": "a crash in native code, called from the line above; its last words are in the log",
    "SIGBUS": "shared memory may be full: @task(shared_memory=True) gives a pod more",
    "SIGABRT": "native code gave up; its last words are in the log",
    "SIGFPE": "a crash in native code; its last words are in the log",
    "SIGILL": "this machine lacks an instruction that a library was built for",
}
_CRASHES_WITHIN: Final = {
    **_CRASHES,
    # Where that process was in the user's code, nobody knows.
    "SIGSEGV": "a crash in native code, in a process that it had started; its last words are in the log",
}
_REFUSED: Final = "memory was refused to it: ask for more, or load less per rank"
_UNEXPLAINED: Final = (
    "a process that it had started ended without a word: it may have been killed for lack of memory, or have "
    "crashed; its last words may be in the log"
)


def remedy(failure: Failure) -> str:
    """A sentence on what to do, or an empty string."""
    cause = classify(failure)
    if cause is Cause.OOM_HOST and _REFUSED_MEMORY.search(_said(failure)):
        return _REFUSED  # Nobody has killed it.
    if cause is not Cause.USER_ERROR:
        return REMEDIES[cause]
    if is_unexplained(failure):
        return _UNEXPLAINED
    return _CRASHES.get(failure.signal) or _CRASHES_WITHIN.get(_signal_within(failure), "")
