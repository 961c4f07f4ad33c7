"""Listening TCP sockets of the processes of one run."""

import os
from pathlib import Path

import psutil


def sockets_of_run(variable: str) -> tuple[list[str], list[str]]:
    """Return the addresses where processes with this process's value of `variable` listen.

    Returns:
        Addresses of the loopback interface, and addresses of other interfaces.
    """
    addresses = [address for pid in _run(variable) for address in _listening(pid)]
    inside = sorted({address for address in addresses if address.startswith(("127.", "::1", "::ffff:127."))})
    return inside, sorted(set(addresses) - set(inside))


def _run(variable: str) -> list[int]:
    wanted = f"{variable}={os.environ[variable]}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # The process has ended or belongs to another user.
            continue
    return found


def _listening(pid: int) -> list[str]:
    try:
        process = psutil.Process(pid)
        # psutil 5 uses another name for this method.
        read = process.net_connections if hasattr(process, "net_connections") else process.connections
        found = read("tcp")
    except psutil.Error:
        return []
    return [f"{each.laddr.ip}:{each.laddr.port}" for each in found if each.status == psutil.CONN_LISTEN]
