"""Parses the message of an error file, which flytekit formats and which may report failed ranks."""

import re
import textwrap
from signal import Signals
from typing import Final, NamedTuple

from msgspec import structs

from backend_plugin.core.error_files import ErrorFile
from kfpytorch_common import tracebacks
from kfpytorch_common.causes import Cause, Failure, Frame, RaisedException

# From flytekit.bin.entrypoint.get_traceback_str, which indents the traceback and the message, so that neither
# contains this line.
_SEPARATOR: Final = "\nMessage:\n\n"
# The first line of a report from flytekitplugins.kfpytorch.worker.report.render.
_REPORT: Final = re.compile(
    r"✗ [^✗\n]{0,300}? failed on (?P<who>[^✗\n]{0,90}?) after [\d.]{1,20} s \((?P<cause>[a-z-]{1,20})\)"
    r"(?:: (?P<headline>[^\n]{1,2000}))?"
)
# The lines of a report that follow the message.
_BELOW: Final = re.compile(r"\n(?!\n)[^\S\n]{0,20}(?:❱ |its last lines:|others |hint  |logs  |more  )")
_AT: Final = re.compile(r" at (?P<file>[^\s:]{1,500}):(?P<line>\d{1,9}) in (?P<function>\S{1,300})$")
_WHO: Final = re.compile(r"(?:rank (?P<rank>\d{1,9}))? ?\(?(?P<where>[\w .-]{0,63})\)?")
# torch.distributed.elastic.multiprocessing.errors.ChildFailedError.format_msg, up to the traceback. Each
# part ends where the next begins: otherwise the time for a hostile text would grow quadratically.
_CHILD: Final = re.compile(
    r"Root Cause \(first observed failure\):\s{1,40}\[\d{1,9}\]:\s{1,40}"
    r"time .{0,300}\n\s{0,40}host .{0,300}\n\s{0,40}rank {1,20}: (?P<rank>\d{1,9}).{0,100}\n\s{0,40}"
    r"exitcode {1,20}: (?P<code>-?\d{1,9}).{0,100}\n\s{0,40}error_file: .{0,500}\n\s{0,40}"
    r"traceback : "
)
_END_OF_CHILD: Final = "\n====="
_EXCEPTION: Final = re.compile(r"^(?P<name>[A-Za-z_][\w.]{0,200})(?:: (?P<message>[\s\S]*)|:)?$")
_KILLED: Final = re.compile(
    r"killed by (?P<signal>SIG[A-Z0-9]+)|exit code (?P<code>-?\d{1,9}), without a message"
)
_LAST_FILE: Final = re.compile(r'File "([^"\n]{1,500})", line \d+')
_TRANSPORT: Final = ("third_party/gloo/", "ProcessGroupGloo.cpp", "ProcessGroupNCCL.cpp")
_TRANSPORT_ERROR: Final = re.compile(r"Dist\w{0,60}Error")
_EXITED: Final = (
    re.compile(r"Pod: (\S{1,317}) exited with code (-?\d{1,9})"),
    re.compile(r"Error pod (\S{1,253}) container pytorch exitCode: (-?\d{1,9})"),
)
_REPLICA: Final = re.compile(r"(?:.*-)?((?:master|worker)-\d{1,9})")
_NODE: Final = re.compile(r".*-node-0-(\d{1,9})-[a-z0-9]{5}")
_LAUNCHER: Final = re.compile(r".*-launcher-0-0-[a-z0-9]{5}")
_NAME: Final = re.compile(r"[\w.-]{1,253}", re.ASCII)
_CAUSES: Final = {cause.value: cause for cause in Cause}

# Enough characters for any readable message; one that contains a tensor may have megabytes.
_LONGEST: Final = 16_000
_SHOWN: Final = 1_000


class _ParsedMessage(NamedTuple):
    """The parts of the message in an error file, such as the text of the exception, traceback and rank."""

    text: str
    trace: str
    rank: str | None = None
    where: str = ""
    exit_code: int | None = None
    """The exit code of a process that ended without an exception."""
    frames: tuple[Frame, ...] = ()
    """The line of user code that raised the error, as one frame; empty if the traceback has this line."""
    chain: tuple[RaisedException, ...] = ()
    """The exceptions that led to the last exception."""
    cause: Cause | None = None


def summarize_file(file: ErrorFile) -> ErrorFile:
    """Return the error file with a truncated message, and with the failure and cause that it reports."""
    failure, cause = parse_error_file(file)
    return structs.replace(file, message=file.message[:_SHOWN], failure=failure, cause=cause)


def parse_error_file(file: ErrorFile) -> tuple[Failure, Cause | None]:
    """Return the failure in an error file, and the cause that its message names (None if it names none).

    A cause that the message names is more certain than one that is derived from the failure.
    """
    if file.failure is not None:
        return file.failure, file.cause
    parsed = _parse_message(file.message)
    name, message = _split_exception(parsed)
    last_file = ["", *_LAST_FILE.findall(parsed.trace)][-1]
    failure = Failure(
        rank=int(parsed.rank) if parsed.rank else None,
        replica=parse_replica_name(file.worker) or parsed.where,
        exit_code=1 if parsed.exit_code is None else parsed.exit_code,
        time_ns=file.time_ns,
        exception=name,
        message=message.strip(),
        frames=parsed.frames,
        chain=parsed.chain,
        traceback=parsed.trace,
        from_torch="/torch/" in last_file or _is_transport_error(name, message),
        recoverable=file.recoverable,
    )
    return failure, parsed.cause


def _split_exception(parsed: _ParsedMessage) -> tuple[str, str]:
    """Return the class and the message of the exception.

    The class is empty if the process ended without an exception, and ``Error`` if the text names no class.
    """
    if parsed.exit_code is not None:
        return "", parsed.text
    known = _EXCEPTION.match(parsed.text)
    return (known["name"], known["message"] or "") if known else ("Error", parsed.text)


def _is_transport_error(name: str, message: str) -> bool:
    return _TRANSPORT_ERROR.match(name) is not None or any(part in message for part in _TRANSPORT)


def _parse_message(message: str) -> _ParsedMessage:
    trace, text = _split_traceback(message)
    if report := _REPORT.search(text):
        return _parse_report(text, trace, report)
    if child := _CHILD.search(text):
        return _parse_child_report(child, text[child.end() :].partition(_END_OF_CHILD)[0])
    if caught := tracebacks.parse_remote_chain(text):
        *chain, last = caught
        return _ParsedMessage(f"{last.exception}: {last.message}", trace, chain=tuple(chain))
    return _ParsedMessage(text, trace, chain=tuple(tracebacks.parse_chain(trace)[:-1]))


def _parse_report(text: str, trace: str, report: "re.Match[str]") -> _ParsedMessage:
    source = _WHO.fullmatch(report["who"])
    headline = report["headline"] or ""
    # A headline about several ranks does not have a single source location.
    several = "; " in headline
    frames = [
        Frame(file=at["file"], line=int(at["line"]), function=at["function"], code="")
        for at in _AT.finditer(headline)
        if not several
    ]
    return _ParsedMessage(
        _extract_report_body(text[report.end() :], headline if several else ""),
        trace,
        rank=source["rank"] if source else None,
        where=source["where"] if source else "",
        exit_code=_parse_exit_code(_KILLED.search(text)),
        frames=tuple(frames),
        cause=_CAUSES.get(report["cause"]),
    )


def _parse_child_report(child: "re.Match[str]", trace: str) -> _ParsedMessage:
    """Parse torchrun's report of the first process that failed."""
    lines = textwrap.dedent(f"  {trace}").splitlines()
    raised = [line for line in lines[1:] if line[:1].strip()]
    if lines[0].startswith("Traceback") and raised:
        return _ParsedMessage("\n".join(raised), "\n".join(lines), rank=child["rank"])
    return _ParsedMessage("", "", rank=child["rank"], exit_code=int(child["code"]))


def _parse_exit_code(silent: "re.Match[str] | None") -> int | None:
    if silent is None:
        return None
    if not silent["signal"]:
        return int(silent["code"])
    return -Signals.__members__.get(silent["signal"], Signals.SIGKILL)


def _split_traceback(text: str) -> tuple[str, str]:
    """Return the traceback and the exception text of a message, each truncated: both may contain a tensor."""
    trace, separator, exception = text.partition(_SEPARATOR)
    if not separator:
        return "", _truncate(text[:_LONGEST]).strip()
    dedented = textwrap.dedent(_truncate(trace[-_LONGEST:]).removeprefix("Trace:").strip("\n"))
    return dedented, textwrap.dedent(_truncate(exception[:_LONGEST])).strip()


def _truncate(text: str) -> str:
    """Return `text`, which has at most `_LONGEST` characters, truncated to `_LONGEST` bytes in UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace")[:_LONGEST].decode("utf-8", "ignore")


def _extract_report_body(below: str, headline: str) -> str:
    """Return the error message in a report of failed ranks; `below` is the text after its first line.

    If `headline` is not empty, it becomes the second line of the message.
    """
    end = _BELOW.search(below)
    body = below[: end.start() if end else None].strip()
    first, *rest = [line.strip() for line in body.splitlines()] or [""]
    return "\n".join([first, *([headline] if headline else []), *rest])


def format_headline(file: ErrorFile, failure: Failure) -> str:
    """Return a one-line summary of a failure, such as ``ValueError: no data``."""
    if failure.exception:
        line = failure.message.partition("\n")[0].strip()
        return f"{failure.exception}: {line}" if line else failure.exception
    return f"killed by {failure.signal}" if failure.signal else f"exit code {failure.exit_code} ({file.code})"


def parse_replica_name(pod: str, *, launcher: bool = False) -> str:
    """Return the replica in the name of a pod: ``worker-0`` for ``job-worker-0``, ``node-1`` for a TrainJob.

    Return any other valid name unchanged, and "" for an invalid one. `launcher` is true for an MPI job: its
    node 0 is the launcher, and the pod names of its other nodes contain their node number minus 1.
    """
    if launcher and _LAUNCHER.fullmatch(pod) is not None:
        return "node-0"
    if (node := _NODE.fullmatch(pod)) is not None:
        return f"node-{int(node[1]) + launcher}"
    match = _REPLICA.fullmatch(pod)
    return match[1] if match else pod if _NAME.fullmatch(pod) else ""


def get_replica_sort_key(replica: str) -> tuple[str, int]:
    """Return a key that sorts replicas by role and then by number: worker-2 before worker-10."""
    role = replica.rstrip("0123456789")
    number = replica[len(role) :]
    return (role, int(number)) if number else (replica, -1)


def parse_exit_event(message: str) -> tuple[str, int]:
    """Return the pod name and exit code in an event message of the operator; "" and 0 for other messages."""
    match = next((result for each in _EXITED if (result := each.search(message))), None)
    return (match[1].rpartition(".")[2], int(match[2])) if match else ("", 0)
