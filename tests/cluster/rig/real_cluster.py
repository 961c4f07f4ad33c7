"""A cluster whose pods are containers: real nodes, DNS, scheduler and operator in their own namespaces."""

import contextlib
import os
import shutil

from rig import debian, images, leftovers, namespaces, operator, scheduling
from rig.control_plane import ControlPlane, Options, free_ports
from rig.fake_nodes import is_ready
from rig.namespaces import GATEWAY, Hub
from rig.node import Node
from rig.process import run_command, wait_for

# The API server has the first address of the Service range.
_API_NAMES = (GATEWAY, "10.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
# Short timeouts, so that an unreachable node and its pods are given up soon.
_API_SERVER = (
    f"--advertise-address={GATEWAY}",
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--kubelet-preferred-address-types=InternalIP",
    "--default-not-ready-toleration-seconds=10",
    "--default-unreachable-toleration-seconds=10",
)
# The operator's default command fails if one of the search domains returns an error. The timeout is long,
# because a master may wait for its node.
_WAITER = f"""
- name: init-pytorch
  image: {{{{.InitContainerImage}}}}
  imagePullPolicy: IfNotPresent
  command: ["{images.PROBE}", "-patience", "30m", "-lookup", "{{{{.MasterAddr}}}}"]
"""
_DNS = "cluster-dns"
_DNS_RULES = (
    {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
)
# The DNS names of a job's pods change, so nothing is cached. Nothing is forwarded, because there is no
# uplink.
_COREFILE = """
cluster.local:53 in-addr.arpa:53 {{
  bind {address}
  errors
  ready {listen}:{port}
  cache 1
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods verified
    ttl 1
  }}
}}
.:53 {{
  bind {address}
  errors
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""


def missing():
    """Return the reason why this machine cannot run real nodes, or an empty string."""
    if os.geteuid() != 0:
        return "real nodes are made of namespaces, mounts and cgroups, and need root"
    programs = [each for each in ("ip", "mount", "nsenter", "unshare") if shutil.which(each) is None]
    if programs:
        return f"real nodes need {', '.join(programs)} on the PATH (iproute2, util-linux)"
    controllers = [one for one in leftovers.CONTROLLERS if not (leftovers.CGROUPS / one / "tasks").exists()]
    if controllers:
        return f"real nodes need these controllers of cgroup v1, as yet: {', '.join(controllers)}"
    unshare = ("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc")
    tried = run_command(*unshare, "ip", "link", "set", "lo", "up")
    if tried.returncode != 0:
        return f"real nodes need namespaces, and root may make none here: {tried.stderr.strip()}"
    try:
        debian.packages()
        debian.packages(debian.MPI)
    except debian.NoPackages as why:
        return str(why)
    return ""


class RealCluster:
    """A context manager that runs a cluster of two nodes, which are ready when it has started.

    The image with this machine's Python has `names` as additional names.
    """

    def __init__(self, folder, names):
        self.folder = folder
        self.shared = folder / "shared"
        """A folder that every container can write to at the same path; serves as an object store."""
        self._names = names
        self._stack = contextlib.ExitStack()
        self._hub: Hub
        self.plane: ControlPlane
        self.nodes = ()

    def __enter__(self):
        self.shared.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            self._hub = stack.enter_context(namespaces.hub(self.folder))
            self.nodes = [self._node(stack, number) for number in (1, 2)]
            for node in self.nodes:
                stack.enter_context(node.containerd)
            self.plane = stack.enter_context(self._plane())
            for image in (images.pause(), images.python(self._names), images.mpi()):
                self.load_image(image)
            for node in self.nodes:
                stack.enter_context(node.kubelet(self.plane))
                stack.enter_context(node.proxy(self.plane))
            _start_dns(self.plane)
            scheduling.start(self.plane)
            operator.start(self.plane, *self._waits())
            self.wait()
            # Runs first at the end and kills all processes together, so that none waits for another to stop.
            stack.callback(self._hub.process.kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    @property
    def admin(self):
        return self.plane.admin

    @contextlib.contextmanager
    def without_network(self, name):
        """Disconnect a node from the network, while its processes continue; reconnect it on exit."""
        (cable,) = (each.station.cable for each in self.nodes if each.name == name)
        self._hub.place.run("ip", "link", "set", cable, "down")
        try:
            yield
        finally:
            self._hub.place.run("ip", "link", "set", cable, "up")
            self.wait()

    def load_image(self, image):
        archive = images.archive(image, self.folder / f"{image.names[0].replace('/', '-')}.tar")
        for node in self.nodes:
            node.imported([archive])

    def wait(self):
        wait_for(
            lambda: [self.admin.get(f"/api/v1/nodes/{each.name}") for each in self.nodes],
            lambda found: all(map(is_ready, found)),
            120,
        )

    def _node(self, stack, number):
        folder = self.folder / f"node-{number}"
        folder.mkdir()
        station = stack.enter_context(namespaces.station(self._hub, number, folder))
        mounts = {**dict.fromkeys(images.machine(), "ro"), self.shared: "rw"}
        return Node(station, folder, mounts)

    def _plane(self):
        place = self._hub.place
        return ControlPlane(
            self.folder,
            Options(
                place=place,
                names=(place.address, *_API_NAMES),
                without_nodes=(),
                api_server=_API_SERVER,
                controller_manager=("--node-monitor-period=2s", "--node-monitor-grace-period=20s"),
            ),
        )

    def _waits(self):
        template = self.folder / "waiter.yaml"
        template.write_text(_WAITER)
        return (
            f"--pytorch-init-container-image={images.PYTHON}",
            f"--pytorch-init-container-template-file={template}",
        )


def _start_dns(plane):
    """Start CoreDNS on the hub, and return when it has synchronized with the API server."""
    plane.admin.grant(_DNS, _DNS_RULES)
    (port,) = free_ports(1)
    corefile = plane.folder / "Corefile"
    known = {"listen": plane.place.listen, "port": port, "kubeconfig": plane.certified(_DNS)}
    corefile.write_text(_COREFILE.format(address=GATEWAY, **known))
    process = plane.enter(plane.process("coredns", (f"-conf={corefile}",)))
    process.wait_until(lambda: plane.place.is_ready(port, "ready"))
