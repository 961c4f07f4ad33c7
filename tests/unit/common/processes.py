"""Helpers that start processes through a fork server and observe them."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kfpytorch_common.forkserver.client import ChildSpec, Client, build_import_path

HERE = str(Path(__file__).parent)


def alive(pid):
    """True if a process runs. A zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(true, seconds):
    deadline = time.monotonic() + seconds
    while not (now := true()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return now


def all_gone(*pids, within=0.0):
    return eventually(lambda: not any(alive(pid) for pid in pids), within)


@dataclass
class Child:
    """A process that a server started, with its output and its messages to the test."""

    client: Client
    number: int
    pid: int
    out: IO[str]
    tells: IO[str]

    def read_message(self):
        """Return the next message of the process."""
        return json.loads(self.tells.readline())

    def all_told(self):
        return [json.loads(line) for line in self.tells]

    def code(self):
        [(number, code)] = self.client.wait_for_exits(8.0)
        assert number == self.number
        return code


class ForkCaller:
    """A client of a server, which closes the pipes of its children at the end."""

    def __init__(self, server, ending):
        self.server = server
        self.client = server.client
        self._ending = ending
        ending.callback(server.stop)

    def start(self, target, args=None, *, env=None, **options):
        """Start `targets:TARGET`, and return it with its output and its messages."""
        out, out_end = os.pipe()
        tells, tells_end = os.pipe()
        ends = [os.open(os.devnull, os.O_RDONLY), out_end, out_end, tells_end]
        job = ChildSpec(f"targets:{target}", args or {}, env, path=[HERE, *build_import_path()], **options)
        number, pid = self.client.start(job, ends)
        for end in set(ends):
            os.close(end)
        streams = [self._ending.enter_context(os.fdopen(fd)) for fd in (out, tells)]
        return Child(self.client, number, pid, *streams)
