"""Functions that the processes of these tests run: targets of the fork server, and callers of one."""

import atexit
import io
import json
import logging
import logging.handlers
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from kfpytorch_common.forkserver import client, launch
from kfpytorch_common.forkserver.child import ChildStart

LONG = 60.0
KEPT: list[Any] = []
"""Objects that exist until the process ends."""


def send_message(start: ChildStart, message: Any) -> None:
    os.write(start.fds[0], json.dumps(message).encode() + b"\n")


def tell_all(start: ChildStart) -> int:
    """Report all inputs that a process can observe."""
    names = start.args["names"]
    printed = subprocess.run(["printenv", *names], stdout=subprocess.PIPE, text=True, check=False).stdout
    properties = {
        "args": start.args,
        "env": {name: os.environ.get(name) for name in names},
        "getenv": printed,
        "cwd": str(Path.cwd()),
        "path": sys.path,
        "argv": sys.argv,
        "input": sys.stdin.readline(),
        "extra": os.read(start.fds[1], 100).decode(),
        "server": start.server is not None,
        "ignores_sigpipe": signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
        "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
    }
    send_message(start, properties)
    sys.stdout.write("to standard output\n")
    sys.stderr.write("to standard error\n")
    return 0


def end(start: ChildStart) -> int:
    """End as `args` specifies: with a code, an exit, an exception or a signal."""
    match start.args["how"]:
        case "exit":
            raise SystemExit(start.args["code"])
        case "raise":
            raise RuntimeError("said aloud")
        case "signal":
            os.kill(os.getpid(), start.args["code"])
            time.sleep(LONG)
    code: int = start.args["code"]
    return code


def sleep(start: ChildStart) -> int:
    send_message(start, {"pid": os.getpid()})
    time.sleep(LONG)
    return 0


def sleep_with_grandchild(start: ChildStart) -> int:
    """Ignore SIGTERM, and start a process in the same process group."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    send_message(start, {"pids": [os.getpid(), subprocess.Popen(["sleep", str(LONG)]).pid]})
    time.sleep(LONG)
    return 0


def wait_for_poke(start: ChildStart) -> int:
    """Return 0 on SIGUSR1 if a process in the same group survives. The signal would end that process."""
    grandchild = subprocess.Popen(["sleep", str(LONG)])
    poked = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: poked.set())
    send_message(start, {"pid": os.getpid()})
    poked.wait(LONG)
    lives = grandchild.poll() is None
    grandchild.kill()
    return 0 if lives else 1


def leave_traces(start: ChildStart) -> int:
    """Report each action that an interpreter does before it ends."""
    atexit.register(send_message, start, "exit handler")
    KEPT.append(Finalized())
    weakref.finalize(KEPT[0], send_message, start, "finalizer")
    threading.Thread(target=lambda: (time.sleep(0.05), send_message(start, "thread"))).start()
    handler = logging.handlers.MemoryHandler(100, target=logging.StreamHandler(sys.stdout))
    logging.getLogger("traces").addHandler(handler)
    logging.getLogger("traces").warning("from the log")
    sys.stdout.write("no line end")
    return 0


class ClassRaises:
    """An object that raises for every attribute, as a lazy module does."""

    def __getattribute__(self, name: str) -> Any:
        raise ImportError(f"{name} cannot be read")


class FlushExits(io.StringIO):
    """A file with a `flush` that tries to end the process."""

    def flush(self) -> None:
        raise SystemExit(9)


def leave_objects_that_raise(start: ChildStart) -> int:
    """Keep objects that raise when they are inspected, and a file that is not flushed."""
    thing = Finalized()
    file = Path(start.args["file"]).open("w")  # noqa: SIM115 - it stays open.
    file.write("buffered")
    KEPT.extend([weakref.proxy(thing), ClassRaises(), FlushExits(), file])
    atexit.register(sys.exit, 8)
    sys.modules["raises"] = KEPT[1]
    return 0


class Finalized:
    """An object with a finalizer."""


def tell_inherited(start: ChildStart) -> int:
    value = start.inherited
    found = value and {"called": value["function"](20), "free": value["lock"].acquire(False)}
    send_message(start, found)
    return 0


def agent(start: ChildStart) -> int:
    """Start a child through the connection to the server, and wait."""
    own = client.Client(start.server)
    null = os.open(os.devnull, os.O_RDWR)
    begun, begun_end = os.pipe()
    _, pid = own.start(client.ChildSpec("targets:sleep", {}, None), [null, null, null, begun_end])
    os.read(begun, 100)
    send_message(start, {"pids": [os.getpid(), pid]})
    if start.args.get("how") == "collect":
        os.kill(pid, signal.SIGKILL)
        send_message(start, own.wait_for_exits(LONG))
        return 0
    time.sleep(LONG)
    return 0


def caller(kind: str, scratch: str) -> None:
    """Run a process that has its own server with a child and a grandchild, until the test kills it."""
    server = launch.start_fresh_server(["json"]) if kind == "fresh" else launch.start_forked_server(())
    server.client.add_scratch(scratch)
    null = os.open(os.devnull, os.O_RDWR)
    reader, writer = os.pipe()
    spec = client.ChildSpec("targets:sleep_with_grandchild", {}, None)
    server.client.start(spec, [null, null, null, writer])
    pids = json.loads(os.read(reader, 1000))["pids"]
    os.write(1, json.dumps([server.pid, *pids]).encode() + b"\n")
    time.sleep(LONG)


def register_and_die(scratch: str, kept: str) -> None:
    """Register directories through a second connection, and end, while the server still loads a module."""
    os.environ["CALLER"] = str(os.getpid())
    run = launch.start_fresh_server(["slow_to_load"]).client.connect()
    run.add_scratch(scratch)
    run.add_scratch(kept)
    run.keep_scratch(kept)
    os.write(run.fileno(), b"...")  # Part of a request, as of a caller that is killed while it sends.
    if os.fork() == 0:  # This process keeps the connections open.
        ends = time.monotonic() + 20
        while Path(scratch).exists() and time.monotonic() < ends:
            time.sleep(0.02)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def polite_caller() -> None:
    """Fork a server while the process has exit handlers and a partial line in its buffer."""
    atexit.register(print, "goodbye of the caller")
    sys.stdout.write("half a line of the caller ")
    server = launch.start_forked_server(())
    null = os.open(os.devnull, os.O_RDWR)
    server.client.start(client.ChildSpec("targets:end", {"how": "code", "code": 0}, None), [null, 1, 2])
    server.client.wait_for_exits(5.0)
    server.stop()
