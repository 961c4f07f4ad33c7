"""A cluster whose pods are containers: real nodes, DNS, scheduler and operator in their own namespaces."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rig import debian, dns, images, leftovers, namespaces, operator, scheduling
from rig.api import Api
from rig.certificates import ClusterAuthority
from rig.control_plane import ADMIN, ControlPlane, Options
from rig.namespaces import GATEWAY, Hub
from rig.node import Node
from rig.place import Place
from rig.process import Process, wait_until

_PROGRAMS: Final = ("ip", "mount", "nsenter", "unshare")
# The API server has the first address of the Service range.
_API_NAMES: Final = (GATEWAY, "10.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
# Short timeouts, so that an unreachable node and its pods are given up soon.
_API_SERVER: Final = (
    f"--advertise-address={GATEWAY}",
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--kubelet-preferred-address-types=InternalIP",
    "--default-not-ready-toleration-seconds=10",
    "--default-unreachable-toleration-seconds=10",
)
_CONTROLLER_MANAGER: Final = ("--node-monitor-period=2s", "--node-monitor-grace-period=20s")
# The operator's default command fails if one of the search domains returns an error. The timeout is long,
# because a master may wait for its node.
_WAITER: Final = f"""
- name: init-pytorch
  image: {{{{.InitContainerImage}}}}
  imagePullPolicy: IfNotPresent
  command: ["{images.PROBE}", "-patience", "30m", "-lookup", "{{{{.MasterAddr}}}}"]
"""


def missing() -> str:
    """Return the reason why this machine cannot run real nodes, or an empty string."""
    if os.geteuid() != 0:
        return "real nodes are made of namespaces, mounts and cgroups, and need root"
    programs = [each for each in _PROGRAMS if shutil.which(each) is None]
    if programs:
        return f"real nodes need {', '.join(programs)} on the PATH (iproute2, util-linux)"
    controllers = [
        each for each in leftovers.CONTROLLERS if not (leftovers.CGROUPS / each / "tasks").exists()
    ]
    if controllers:
        return f"real nodes need these controllers of cgroup v1, as yet: {', '.join(controllers)}"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "ip", "link", "set", "lo", "up"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if tried.returncode != 0:
        return f"real nodes need namespaces, and root may make none here: {tried.stderr.strip()}"
    try:
        debian.packages()
        debian.packages(debian.MPI)
    except debian.NoPackages as why:
        return str(why)
    return ""


class RealCluster:
    """A context manager that runs the cluster. Nodes are ready and names resolve when it has started.

    Args:
        folder: The folder for state and logs.
        names: Additional names for the image with this machine's Python.
        operator_flags: Further flags of the training operator.
        nodes: The number of nodes.
    """

    def __init__(
        self, folder: Path, names: Sequence[str] = (), operator_flags: Sequence[str] = (), nodes: int = 2
    ) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        """A folder that every container can write to at the same path; serves as an object store."""
        self._names = names
        self._operator_flags = operator_flags
        self._count = nodes
        self._stack = contextlib.ExitStack()
        self._hub: Hub
        self.plane: ControlPlane
        self.nodes: Sequence[Node] = ()

    def __enter__(self) -> "RealCluster":
        self.shared.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            self._hub = stack.enter_context(namespaces.hub(self.folder))
            self.nodes = [self._node(stack, number) for number in range(1, self._count + 1)]
            for node in self.nodes:
                stack.enter_context(node.containerd)
            self.plane = stack.enter_context(self._plane())
            archives = self._archives()
            for node in self.nodes:
                node.imported(archives)
                stack.enter_context(node.kubelet(self.plane))
                stack.enter_context(node.proxy(self.plane))
            dns.start(self.plane)
            scheduling.start(self.plane)
            operator.start(self.plane, *self._waits(), *self._operator_flags)
            self.wait()
            # Runs first at the end and kills all processes together, so that none waits for another to stop.
            stack.callback(self._hub.process.kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def admin(self) -> Api:
        """A client of the API server with all rights."""
        return self.plane.admin

    @property
    def authority(self) -> ClusterAuthority:
        """The certificate authority of the cluster."""
        return self.plane.authority

    @property
    def place(self) -> Place:
        """The place of the control plane; its servers are reachable at `place.address`."""
        return self._hub.place

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Write a kubeconfig for a user that works here and on the hub."""
        return self.plane.kubeconfig(user)

    def add(self, process: Process) -> Process:
        """Start a program that is stopped with the cluster."""
        return self.plane.enter(process)

    def node(self, name: str) -> Node:
        """Return the node with this name."""
        (found,) = (each for each in self.nodes if each.name == name)
        return found

    def cut_off(self, name: str) -> None:
        """Disconnect a node from the network; its processes continue."""
        namespaces.cut_off(self._hub, self.node(name).station)

    def join(self, name: str) -> None:
        """Reconnect a node to the network."""
        namespaces.join(self._hub, self.node(name).station)

    def wait(self) -> None:
        """Wait until all nodes accept pods."""

        def ready() -> bool:
            return all(each.is_ready(self.admin.get(f"/api/v1/nodes/{each.name}")) for each in self.nodes)

        wait_until(ready, 120, lambda: f"nodes are not ready: {self.admin.items('/api/v1/nodes')}")

    def _node(self, stack: contextlib.ExitStack, number: int) -> Node:
        folder = self.folder / f"node-{number}"
        folder.mkdir()
        station = stack.enter_context(namespaces.station(self._hub, number, folder))
        mounts = {**dict.fromkeys(images.machine(), "ro"), self.shared: "rw"}
        return Node(station, folder, mounts)

    def _archives(self) -> Sequence[Path]:
        made = {"pause": images.pause(), "python": images.python(self._names), "mpi": images.mpi()}
        return [images.archive(image, self.folder / f"{name}.tar") for name, image in made.items()]

    def _plane(self) -> ControlPlane:
        place = self._hub.place
        return ControlPlane(
            self.folder,
            Options(
                place=place,
                names=(place.address, *_API_NAMES),
                without_nodes=(),
                api_server=_API_SERVER,
                controller_manager=_CONTROLLER_MANAGER,
            ),
        )

    def _waits(self) -> Sequence[str]:
        template = self.folder / "waiter.yaml"
        template.write_text(_WAITER)
        return (
            f"--pytorch-init-container-image={images.PYTHON}",
            f"--pytorch-init-container-template-file={template}",
        )
