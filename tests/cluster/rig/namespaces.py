"""Machines that are namespaces: a hub for the control plane, nodes, and one process that they all hang on.

When that process ends, however it does, everything in them ends too, and interfaces and mounts go with it.
All nodes and the hub are on one network that leads nowhere else; a link leads from here to the hub.
"""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rig import leftovers
from rig.place import LOOPBACK, Place
from rig.process import Process
from rig.tools import tool

PODS: Final = "10.77.0.0/16"
GATEWAY: Final = "10.77.0.1"
"""Of the hub, as nodes and pods see it."""
_PREFIX: Final = 16
_ALL: Final = "0.0.0.0"
_UPLINK: Final = "up0"
# Paths that programs are built with, and would share with other rigs, or with the machine itself. The two of
# /var/lib stay behind as empty folders: to remove what is a mount point elsewhere unmounts it there.
_PRIVATE: Final = ("/var/log", "/var/lib/kubelet", "/var/lib/cni")
# kubelet sets them, and they are the whole machine's.
_KERNEL: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Where the control plane runs."""

    number: int
    place: Place
    process: Process
    """What everything hangs on."""


@dataclass(frozen=True, kw_only=True)
class Station:
    """Where one node runs."""

    number: int
    address: str
    """As the hub and the pods see it."""
    place: Place
    cable: str
    """The hub's end of its link."""
    cgroup: str


@contextlib.contextmanager
def hub(folder: Path) -> Iterator[Hub]:
    """The namespaces and the network."""
    with leftovers.number() as number:
        holder = Process(
            [
                *(_found("unshare"), "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *("--propagation=private", "sh", "-ec", f"exec {tool('pause')}"),
            ],
            folder / "logs" / "hub.log",
        )
        with holder:
            process = _held_by(holder)
            ours, theirs = _ends(number)
            place = Place(address=theirs, listen=_ALL, holder=process)
            link = leftovers.name(number)
            LOOPBACK.run(*f"ip link add {link} type veth peer name {_UPLINK} netns {process}".split())
            LOOPBACK.run(*f"ip address add {ours}/30 dev {link}".split())
            LOOPBACK.run(*f"ip link set {link} up".split())
            _batch(
                place,
                "ip link set lo up",
                f"ip address add {theirs}/30 dev {_UPLINK}",
                f"ip link set {_UPLINK} up",
                *_bridge("hub0", GATEWAY, 0),
            )
            try:
                yield Hub(number=number, place=place, process=holder)
            finally:
                # It is not asked: all that runs in there is to end at once.
                holder.kill()


@contextlib.contextmanager
def station(hub: Hub, number: int, folder: Path) -> Iterator[Station]:
    """A node's namespaces, its cable to the hub and its cgroups."""
    for path in _PRIVATE:
        Path(path).mkdir(parents=True, exist_ok=True)
        (folder / path[1:]).mkdir(parents=True)
    for path in _KERNEL:
        copy = folder / "kernel" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(Path("/proc/sys", path).read_bytes())
    script = [
        *(f"mount --bind {folder / path[1:]} {path}" for path in _PRIVATE),
        *(f"mount --bind {folder / 'kernel' / path} /proc/sys/{path}" for path in _KERNEL),
        "mount -t tmpfs -o mode=755 tmpfs /run",
        # For volumes that are to be seen by, or from, a container.
        "mount --make-rshared /",
        f"exec {tool('pause')}",
    ]
    holder = Process(
        [_found("unshare"), "--mount", "--net", "--propagation=private", "sh", "-ec", "\n".join(script)],
        folder / "namespace.log",
        place=hub.place,
    )
    with holder:
        process = _held_by(holder)
        address, cable = f"10.77.{number}.1", f"n{number}"
        place = Place(address=address, listen=address, holder=process)
        # Processes have other numbers on the hub: we, who know both ends by ours, make the link.
        LOOPBACK.run(
            *f"ip link add {cable} netns {hub.place.holder} type veth peer name eth0 netns {process}".split()
        )
        _batch(hub.place, f"ip link set {cable} master hub0", f"ip link set {cable} up")
        _batch(
            place, "ip link set lo up", *_bridge("pods0", address, number), "ip link set eth0 master pods0 up"
        )
        cgroup = f"/{leftovers.name(hub.number)}/{number}"
        _make_cgroups(cgroup)
        yield Station(number=number, address=address, place=place, cable=cable, cgroup=cgroup)


def cut_off(hub: Hub, station: Station) -> None:
    """Pull a node's cable."""
    hub.place.run("ip", "link", "set", station.cable, "down")


def join(hub: Hub, station: Station) -> None:
    """Put it back."""
    hub.place.run("ip", "link", "set", station.cable, "up")


def _held_by(holder: Process) -> int:
    """Who holds the namespaces, once they are complete: the child of what was started to make them."""
    found: list[int] = []

    def pauses() -> bool:
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            (child,) = children.read_text().split()
            if Path(f"/proc/{child}/comm").read_text().strip() == "pause":
                found.append(int(child))
        return bool(found)

    holder.wait_until(pauses)
    return found[0]


def _bridge(name: str, address: str, number: int) -> Sequence[str]:
    """With an address of its own, not its first port's: that of a pod, which goes."""
    return (
        f"ip link add {name} address 02:00:0a:4d:{number:02x}:01 type bridge",
        f"ip address add {address}/{_PREFIX} dev {name}",
        f"ip link set {name} up",
    )


def _batch(place: Place, *commands: str) -> None:
    place.run("sh", "-ec", "\n".join(commands))


def _ends(number: int) -> tuple[str, str]:
    """The two addresses of the link between a rig and us: a network of four for each number."""
    high, low = divmod(number * 4, 256)
    return f"10.79.{high}.{low + 1}", f"10.79.{high}.{low + 2}"


def _make_cgroups(cgroup: str) -> None:
    for controller in leftovers.CONTROLLERS:
        folder = leftovers.CGROUPS / controller / cgroup[1:]
        folder.mkdir(parents=True)
        if controller == "cpuset":
            # Empty at first, and then nothing may run in it.
            for inner in (folder.parent, folder):
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (inner / file).write_text((leftovers.CGROUPS / controller / file).read_text())


def _found(program: str) -> str:
    path = shutil.which(program)
    assert path is not None, f"{program} is not on the PATH"
    return path
