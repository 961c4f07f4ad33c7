"""Machines made of Linux namespaces: a hub for the control plane and one station per node.

All namespaces end with one process of the hub, together with their interfaces and mounts. The hub and the
nodes share a network without an uplink. A link connects this machine with the hub.
"""

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rig import leftovers
from rig.process import LOOPBACK, Place, Process
from rig.tools import tool

PODS = "10.77.0.0/16"
GATEWAY = "10.77.0.1"  # The address of the hub in the network of nodes and pods.
_ALL = "0.0.0.0"
_UPLINK = "up0"
# Paths that are compiled into programs and would be shared with other rigs or this machine. The two in
# /var/lib remain as empty folders, because removing a mount point unmounts it in other namespaces, too.
_PRIVATE = ("/var/log", "/var/lib/kubelet", "/var/lib/cni")
# kubelet sets these parameters, which are global to the machine.
_KERNEL = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


@dataclass(frozen=True, kw_only=True)
class Hub:
    name: str  # The name of the link from this machine, and of the cgroups.
    place: Place
    process: Process  # The process that ends all namespaces when it ends.


@dataclass(frozen=True, kw_only=True)
class Station:
    number: int
    address: str  # The address of the node in the network of the hub and the pods.
    place: Place
    cable: str  # The hub's end of the link to the node.
    cgroup: str


@contextlib.contextmanager
def hub(folder):
    with leftovers.name() as link:
        holder = Process(
            [
                *(_find_program("unshare"), "--mount", "--net", "--pid", "--fork", "--kill-child"),
                *("--mount-proc", "--propagation=private", "sh", "-ec", f"exec {tool('pause')}"),
            ],
            folder / "logs" / "hub.log",
        )
        with holder:
            process = _held_by(holder)
            ours, theirs = _ends(os.getpid())
            place = Place(address=theirs, listen=_ALL, holder=process)
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
                yield Hub(name=link, place=place, process=holder)
            finally:
                holder.kill()  # Kill instead of stopping, so that all processes inside end immediately.


@contextlib.contextmanager
def station(hub, number, folder):
    """Create the namespaces of a node, its link to the hub and its cgroups."""
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
        # Required for volumes with mount propagation to or from a container.
        "mount --make-rshared /",
        f"exec {tool('pause')}",
    ]
    holder = Process(
        [
            *(_find_program("unshare"), "--mount", "--net", "--propagation=private"),
            *("sh", "-ec", "\n".join(script)),
        ],
        folder / "namespace.log",
        place=hub.place,
    )
    with holder:
        process = _held_by(holder)
        address, cable = f"10.77.{number}.1", f"n{number}"
        place = Place(address=address, listen=address, holder=process)
        # Processes have other ids inside the hub, so create the link from here, where both ids are visible.
        LOOPBACK.run(
            *f"ip link add {cable} netns {hub.place.holder} type veth peer name eth0 netns {process}".split()
        )
        _batch(hub.place, f"ip link set {cable} master hub0", f"ip link set {cable} up")
        _batch(
            place, "ip link set lo up", *_bridge("pods0", address, number), "ip link set eth0 master pods0 up"
        )
        cgroup = f"/{hub.name}/{number}"
        _make_cgroups(cgroup)
        yield Station(number=number, address=address, place=place, cable=cable, cgroup=cgroup)


def _held_by(holder):
    """Wait until the namespaces are complete, and return the id of the process that holds them."""
    found = []

    def pauses():
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            (child,) = children.read_text().split()
            if Path(f"/proc/{child}/comm").read_text().strip() == "pause":
                found.append(int(child))
        return bool(found)

    holder.wait_until(pauses)
    return found[0]


def _bridge(name, address, number):
    """Return the commands for a bridge with a fixed MAC address.

    Without one, the bridge takes the MAC address of its first port, which disappears with that pod.
    """
    return (
        f"ip link add {name} address 02:00:0a:4d:{number:02x}:01 type bridge",
        f"ip address add {address}/16 dev {name}",
        f"ip link set {name} up",
    )


def _batch(place, *commands):
    place.run("sh", "-ec", "\n".join(commands))


def _ends(number):
    """Return the addresses of the link between this machine and a rig, a /30 network for most numbers."""
    high, low = divmod(number % (1 << 14) * 4, 256)
    return f"10.79.{high}.{low + 1}", f"10.79.{high}.{low + 2}"


def _make_cgroups(cgroup):
    for controller in leftovers.CONTROLLERS:
        folder = leftovers.CGROUPS / controller / cgroup[1:]
        folder.mkdir(parents=True)
        if controller == "cpuset":
            # A new cpuset is empty, and no process can run in it.
            for inner in (folder.parent, folder):
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (inner / file).write_text((leftovers.CGROUPS / controller / file).read_text())


def _find_program(program):
    path = shutil.which(program)
    assert path is not None, f"{program} is not on the PATH"
    return path
