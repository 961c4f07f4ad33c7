"""Causes of failed replicas, and the choice of the root cause among several failures."""

import enum
import re
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final


class Cause(enum.Enum):
    """The cause of a failure, as used in messages, metrics, events, exit codes and documentation."""

    USER_ERROR = "user-error"
    OOM_HOST = "oom-host"
    OOM_GPU = "oom-gpu"
    NCCL_TIMEOUT = "nccl-timeout"
    HANG = "hang"
    PREEMPTED = "preempted"
    NODE_LOST = "node-lost"
    IMAGE_PULL = "image-pull"
    UNSCHEDULABLE = "unschedulable"
    QUOTA_EXCEEDED = "quota-exceeded"
    QUEUE = "queue"
    INVALID_CONFIG = "invalid-config"
    SYSTEM_ERROR = "system-error"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A line of a traceback."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True, kw_only=True)
class RaisedException:
    """An exception that a traceback shows: its class, its message and its frames."""

    exception: str
    message: str
    frames: tuple[Frame, ...] = ()
    """The stack frames of the exception, innermost last. Frames of libraries may be left out."""
    handled: bool = False
    """True if an ``except`` block for this exception raised the next one, without ``from``."""
    collective: str = ""
    from_torch: bool = False


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The failure of a replica, or of one of its processes, with the details that it recorded."""

    rank: int | None
    """The global rank; None if the replica failed before it had a rank."""
    replica: str
    """The operator's name of the replica (``worker-0``), or ``node 1`` for the agent of an elastic job."""
    exit_code: int
    """The exit code as in `subprocess`: the negative signal number if a signal ended the process."""
    time_ns: int
    """The time of the failure by the clock of the replica, in nanoseconds since the epoch."""
    pid: int = 0
    local_rank: int | None = None
    exception: str = ""
    """The class of the exception; empty if the process ended without an exception."""
    message: str = ""
    """The message of the exception; without an exception, the last output of the process."""
    frames: tuple[Frame, ...] = ()
    """The stack frames of the failure, innermost last."""
    chain: tuple[RaisedException, ...] = ()
    """The exceptions in the chain of causes and contexts of `exception`, the earliest first."""
    collective: str = ""
    """The function of torch.distributed that the rank had called, such as ``all_reduce``."""
    traceback: str = ""
    from_torch: bool = False
    """True if the exception was raised inside torch, not by the user's code."""
    recoverable: bool = False
    waiting: bool = False
    """True if the rank was waiting for its peers inside torch.distributed when it was stopped."""
    stopped: bool = False
    """True if the replica was running until it was stopped because of another failure."""

    @property
    def signal(self) -> str:
        """The name of the signal that ended the process, or an empty string."""
        return format_signal(-self.exit_code) if self.exit_code < 0 else ""


def format_signal(number: int) -> str:
    """Return the name of a signal, such as ``SIGKILL``; ``signal 40`` for a signal without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# Messages of a rank that lost its peer or waited for it too long (gloo, NCCL, TCPStore and c10d of
# torch 2.x).
_CONSEQUENCE: Final = (
    "connection closed", "connection reset", "connection refused", "connection was closed",
    "socket closed", "socket timeout", "broken pipe", "read error",
    "recvvalue failed", "failed to recv", "sendbytes failed", "write [", "writev [", "readall",
    "remote process exited", "ncclremoteerror", "ncclsystemerror", "unhandled system error",
    "timed out waiting", "timed out while trying to connect", "wait timeout",
    "watchdog caught collective", "collective operation timeout",
    "store is down", "brokenbarrier", "broken barrier", "application timeout caused pair closure",
)  # fmt: skip
_TIMED_OUT: Final = re.compile(
    r"timed out after \d{1,12} ?(?:seconds|ms)? (?:waiting|while trying to connect)", re.IGNORECASE
)
_PEER_EXCEPTIONS: Final = frozenset(
    {"DistNetworkError", "DistStoreError", "DistBackendError", "ConnectionResetError", "BrokenPipeError",
     "ConnectionRefusedError", "EOFError", "RuntimeError", "TimeoutError", "DistError"}
)  # fmt: skip


def is_consequence(failure: Failure | RaisedException) -> bool:
    """True if a failure is only a consequence of a peer's failure, such as a lost connection."""
    if not failure.from_torch:
        return False
    name = failure.exception.rpartition(".")[2]
    # A DataLoader reraises in torch an exception that the user's code raised in a worker.
    named = name in _PEER_EXCEPTIONS and "in DataLoader worker" not in failure.message
    return named and (
        _has_any(_CONSEQUENCE, failure.message) or _TIMED_OUT.search(failure.message) is not None
    )


def find_wrapped_consequence(failure: Failure) -> RaisedException | None:
    """Return the latest exception in `failure.chain` that only reports a failed peer, or None."""
    return next((each for each in reversed(failure.chain) if is_consequence(each)), None)


def _has_any(phrases: Sequence[str], text: str) -> bool:
    lowered = text.lower()
    return any(phrase in lowered for phrase in phrases)


def select_root_cause(failures: Iterable[Failure]) -> Failure:
    """Return the failure that probably caused the others.

    The failures form four groups, in this order: processes that ended without an exception, because no error
    of a peer causes such an end; errors that are unrelated to a peer's failure; consequences of a peer's
    failure; stopped processes. The function returns the earliest failure in the first nonempty group.
    """
    return min(failures, key=_compute_order)


# Nanoseconds by which a timeout may be recorded after its consequences: the rank closes its connections
# first, and its peers report that.
_CLOSES: Final = 10**9


def _compute_order(failure: Failure) -> tuple[int, int]:
    if failure.stopped:
        return 3, failure.time_ns
    if not failure.exception:
        return 0, failure.time_ns
    if not is_consequence(failure):
        return 2 if find_wrapped_consequence(failure) else 1, failure.time_ns
    return 2, failure.time_ns - (_CLOSES if is_timeout(failure) else 0)


def is_timeout(failure: Failure) -> bool:
    """True if the failure is a timeout: a rank waited for its peers until its collective timed out."""
    return is_consequence(failure) and _has_any(_WAITING, failure.message)


# RMM and thrust report lack of GPU memory in a std::bad_alloc, so this is checked before _REFUSED_MEMORY.
_GPU_MEMORY: Final = (
    "cuda out of memory", "cuda error: out of memory", "hip out of memory", "hip error: out of memory",
    "outofmemoryerror", "cudaerrormemoryallocation",
)  # fmt: skip
# `MemoryError` or a subclass, such as numpy's or pyarrow's. Only the start of the text is compared, because a
# message may name any class.
_MEMORY_ERROR: Final = re.compile(r"[\w.]{0,200}MemoryError\b")
_REFUSED_MEMORY: Final = (
    "DefaultCPUAllocator: can't", "DefaultCPUAllocator: not enough", "std::bad_alloc", "[Errno 12]",
    "Cannot allocate memory (12)",
)  # fmt: skip
_COLLECTIVE: Final = ("watchdog caught collective", "collective timed out")
_OPERATION: Final = " operation timed out"
_WAITING: Final = ("timed out", "timeout")


def _is_refused_memory(text: str) -> bool:
    return _MEMORY_ERROR.match(text) is not None or any(phrase in text for phrase in _REFUSED_MEMORY)


def _is_collective_timeout(text: str) -> bool:
    if _has_any(_COLLECTIVE, text):
        return True
    # The text between NCCL's name and the operation contains no colon.
    parts = text.lower().split(":") if _has_any((_OPERATION,), text) else ()
    return any("nccl" in part.rpartition(_OPERATION)[0] for part in parts)


_BY_WORDS: Final[Sequence[tuple[Callable[[str], bool], Cause]]] = (
    (partial(_has_any, _GPU_MEMORY), Cause.OOM_GPU),
    (_is_refused_memory, Cause.OOM_HOST),
    (_is_collective_timeout, Cause.NCCL_TIMEOUT),
)
"""Pairs of a check of an error text, and the cause if it succeeds; the first successful check decides."""

# The part of the last output that shows why the process ended: C++'s std::terminate, and torchrun's first
# failed process. torchrun itself may have stopped the others.
_ENDED: Final = re.compile(
    r"terminate called after throwing an instance of [\s\S]{0,500}|"
    r"Root Cause \(first observed failure\):[\s\S]{0,2000}"
)


def _get_evidence(failure: Failure) -> str:
    """Return the text that shows the cause: the exception, or the error that C++ or torchrun printed last."""
    if failure.exception:
        return f"{failure.exception} {failure.message}"
    return "\n".join(_ENDED.findall(failure.message))


# torch's messages about a process that a rank or torchrun had started: DataLoader, `spawn`, agent.
_DATA_LOADER_WORKER: Final = re.compile(
    r"DataLoader worker \(pid \d{1,9}\) is killed by signal: (?P<described>[A-Z][a-z ]{1,40})"
)
_SPAWNED_PROCESS: Final = re.compile(r"process \d{1,9} terminated with signal (?P<named>SIG[A-Z0-9]{1,20})")
_ROOT: Final = "Root Cause (first observed failure):"
_ROOT_SIGNAL: Final = re.compile(r"exitcode {1,20}: -(?P<number>\d{1,2}) \(pid: ")
_ROOT_LENGTH: Final = 1000
# The descriptions of strsignal(3).
_DESCRIBED: Final = {
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
# A DataLoader raises this error from one that states why its worker ended, if the reason is known.
_LOST_PROCESS: Final = re.compile(
    r"DataLoader worker \(pid\(s\) [\d, ]{1,200}\) exited unexpectedly|^[\w.]{0,200}BrokenProcessPool\b"
)


def _find_inner_signal(failure: Failure) -> str:
    evidence = _get_evidence(failure)
    text = failure.traceback if _LOST_PROCESS.search(evidence) else evidence
    if worker := _DATA_LOADER_WORKER.search(text):
        return _DESCRIBED.get(worker["described"], "")
    if process := _SPAWNED_PROCESS.search(text):
        return process["named"]
    causes = (_ROOT_SIGNAL.search(each[:_ROOT_LENGTH]) for each in text.split(_ROOT)[1:])
    first = next(filter(None, causes), None)
    return format_signal(int(first["number"])) if first else ""


def is_unexplained(failure: Failure) -> bool:
    """True if the failed process only reports that its own child process ended, without the reason."""
    return _LOST_PROCESS.search(_get_evidence(failure)) is not None and not _find_inner_signal(failure)


def classify(failure: Failure) -> Cause:
    """Return the cause of a failure; SIGKILL counts as lack of memory, and SIGTERM as preemption."""
    evidence = _get_evidence(failure)
    for has_words, cause in _BY_WORDS:
        if has_words(evidence):
            return cause
    if "SIGKILL" in (failure.signal, _find_inner_signal(failure)):
        return Cause.OOM_HOST
    if failure.exception == "RendezvousFailed" or is_timeout(failure):
        return Cause.HANG
    if failure.signal == "SIGTERM":
        return Cause.PREEMPTED
    return Cause.USER_ERROR


REMEDIES: Final[dict[Cause, str]] = {
    Cause.OOM_GPU: "lower the batch size, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    Cause.OOM_HOST: "killed from outside, usually for lack of memory: request more, or load less per rank",
    Cause.NCCL_TIMEOUT: "a rank joined a collective too late; TORCH_NCCL_TRACE_BUFFER_SIZE=2000 shows which",
    Cause.HANG: "all ranks must call the same collective; a rank that joins late needs a longer timeout",
    Cause.PREEMPTED: "stopped from outside; save checkpoints and set retries to resume from them",
}

CLUSTER_REMEDIES: Final[dict[Cause, str]] = {
    Cause.PREEMPTED: "stopped to free resources; save checkpoints and set retries to resume from them",
    Cause.NODE_LOST: "its node was lost; save checkpoints and set retries to resume from them",
    Cause.IMAGE_PULL: "check the image's name and tag, and that the nodes may pull it",
    Cause.UNSCHEDULABLE: "request less, or what the nodes have: see `kubectl describe nodes`",
    Cause.QUOTA_EXCEEDED: (
        "the namespace's ResourceQuota is too small for it: request less, or have an admin raise it"
    ),
    Cause.QUEUE: "it waits in its queue; the wait depends on the queue's quota and the jobs ahead of it",
    Cause.INVALID_CONFIG: (
        "the task requires something that this cluster does not have or allow; change the task"
    ),
    Cause.SYSTEM_ERROR: "not an error of the task; if it happens again, report it to an admin of the cluster",
}

_CRASHES: Final = {
    "SIGSEGV": "a crash in native code, called from the line above; its last output is in the log",
    "SIGBUS": "shared memory may be full: @task(shared_memory=True) gives a pod more",
    "SIGABRT": "native code aborted the process; its last output is in the log",
    "SIGFPE": "a crash in native code; its last output is in the log",
    "SIGILL": "this machine lacks an instruction that a library was built for",
}
_CRASHES_WITHIN: Final = {
    **_CRASHES,
    # For a process that the rank had started, the line of the user's code is not known.
    "SIGSEGV": "a crash in native code, in a process that it had started; its last output is in the log",
}
MISMATCH: Final = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d{1,20}) vs (\d{1,20})")
"""gloo's message if a peer sends more bytes than the collective of the receiving rank expects."""
_SAME_COLLECTIVES: Final = (
    "all ranks must call the same collectives in the same order, with tensors of the same shape and type"
)
_NCCL_REMEDIES: Final = {
    "No backend type associated with device type cpu": (
        "nccl reduces only tensors on a GPU: move the tensor to the GPU of the rank, or call "
        'init_process_group("cpu:gloo,cuda:nccl")'
    ),
    "Duplicate GPU detected": (
        "nccl needs a GPU for each rank: call torch.cuda.set_device() with LOCAL_RANK first, or start fewer "
        "ranks"
    ),
}
"""Remedies for messages of torch and nccl about a wrong use of nccl."""
_REFUSED: Final = "a memory allocation failed: request more memory, or load less per rank"
_UNEXPLAINED: Final = (
    "a process that it had started ended without an error: it may have been killed for lack of memory, or "
    "have crashed; its last output may be in the log"
)


def get_remedy(failure: Failure) -> str:
    """Return a sentence that states how to avoid the failure; empty if no remedy is known."""
    cause, evidence = classify(failure), _get_evidence(failure)
    if cause is Cause.OOM_HOST and _is_refused_memory(evidence):
        return _REFUSED  # The remedy in REMEDIES is for a killed process.
    if cause is not Cause.USER_ERROR:
        return REMEDIES[cause]
    if is_unexplained(failure):
        return _UNEXPLAINED
    usage = _find_usage_remedy(failure.exception, evidence)
    crash = _CRASHES.get(failure.signal) or _CRASHES_WITHIN.get(_find_inner_signal(failure), "")
    return usage or crash


def _find_usage_remedy(exception: str, evidence: str) -> str:
    if exception in ("EarlyExit", "CollectiveMismatch") or MISMATCH.search(evidence):
        return _SAME_COLLECTIVES
    return next((remedy for message, remedy in _NCCL_REMEDIES.items() if message in evidence), "")
