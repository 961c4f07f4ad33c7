"""A real node: containerd, kubelet and kube-proxy in a station."""

import json
from collections.abc import Mapping

from rig import debian, images, namespaces
from rig.control_plane import dumped
from rig.namespaces import GATEWAY, PODS
from rig.process import Process
from rig.tools import tool

# /run is private to each node. The path of the test folder can be too long for a socket.
_SOCKET = "/run/containerd/containerd.sock"
_NAMESPACE = "k8s.io"  # The containerd namespace of Kubernetes.


class Node:
    """The programs of one node. containerd needs no control plane and is created first."""

    def __init__(self, station, folder, mounts):
        """Configure a node. All its containers get the `mounts`, each with the mode `ro` or `rw`."""
        self.name = f"node-{station.number}"
        self.station = station
        self._folder = folder
        self._mounts = mounts
        self.containerd = self._containerd()

    def imported(self, archives):
        self.containerd.wait_until(self._answers)
        for archive in archives:
            self._ctr("--namespace", _NAMESPACE, "images", "import", archive)

    def kubelet(self, plane):
        """Return the kubelet that registers this node with the cluster; not started."""
        user = f"system:node:{self.name}"
        serving = plane.authority.server(self.name, (self.station.address, self.name))
        config = dumped(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                **self._place_of_pods(),
                **_PACE,
                "tlsCertFile": str(serving.certificate),
                "tlsPrivateKeyFile": str(serving.key),
                "authentication": {"x509": {"clientCAFile": str(plane.authority.certificate)}},
            },
            self._folder / "kubelet.yaml",
        )
        return self._process(
            "kubelet",
            tool("kubelet"),
            f"--config={config}",
            f"--kubeconfig={plane.certified(user, 'system:nodes', inside(plane))}",
            f"--cert-dir={self._folder}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.station.address}",
        )

    def proxy(self, plane):
        """Return the kube-proxy that routes Service addresses for pods of this node; not started."""
        config = dumped(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "mode": "nftables",
                "clusterCIDR": PODS,
                "hostnameOverride": self.name,
                # Connection tracking limits are global to the machine.
                "conntrack": {"maxPerCore": 0},
                "clientConnection": {
                    "kubeconfig": str(plane.certified("system:kube-proxy", "", inside(plane)))
                },
            },
            self._folder / "kube-proxy.yaml",
        )
        return self._process("kube-proxy", tool("kube-proxy"), f"--config={config}")

    def _containerd(self):
        network = self._folder / "network"
        network.mkdir()
        dumped(self._network(), network / "rig.conflist")
        specification = self._folder / "specification.json"
        runtime = {
            "runtime_type": "io.containerd.runc.v2",
            "base_runtime_spec": str(specification),
            "options": {"BinaryName": str(debian.packages() / "usr/sbin/runc"), "SystemdCgroup": False},
        }
        settings = {
            "sandbox_image": images.PAUSE,
            "disable_apparmor": True,
            "disable_hugetlb_controller": True,
            # Without CAP_SYS_RESOURCE, root may not lower the OOM score of a process.
            "restrict_oom_score_adj": True,
            "containerd": {
                "snapshotter": "overlayfs",
                "default_runtime_name": "runc",
                "runtimes": {"runc": runtime},
            },
            "cni": {"bin_dir": str(debian.packages() / "usr/lib/cni"), "conf_dir": str(network)},
        }
        document = {
            "version": 2,
            "root": str(self._folder / "containerd"),
            "state": "/run/containerd/state",
            "grpc": {"address": _SOCKET},
            "disabled_plugins": [
                f"io.containerd.snapshotter.v1.{name}" for name in ("aufs", "btrfs", "devmapper", "zfs")
            ],
            "plugins": {"io.containerd.grpc.v1.cri": settings},
        }
        config = self._folder / "containerd.toml"
        config.write_text(_toml(document))
        dumped(self._specification(), specification)
        return self._process("containerd", debian.packages() / "usr/bin/containerd", f"--config={config}")

    def _specification(self):
        """Return the default OCI spec of containerd with the mounts of this node."""
        specification = json.loads(self._ctr("oci", "spec"))
        shown = [
            {"destination": str(path), "source": str(path), "type": "bind", "options": ["rbind", mode]}
            for path, mode in self._mounts.items()
        ]
        return {**specification, "mounts": [*specification["mounts"], *shown]}

    def _network(self):
        number = self.station.number
        ours = {
            "subnet": PODS,
            "rangeStart": f"10.77.{number}.10",
            "rangeEnd": f"10.77.{number}.250",
            "gateway": self.station.address,
        }
        bridge = {
            "type": "bridge",
            "bridge": "pods0",
            "isDefaultGateway": True,
            # Pods must see each other's addresses, and the network has no uplink that needs masquerading.
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "dataDir": "/run/rig-network", "ranges": [[ours]]},
        }
        return {"cniVersion": "0.4.0", "name": "rig", "plugins": [bridge]}

    def _place_of_pods(self):
        return {
            "address": self.station.address,
            "readOnlyPort": 0,
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.station.cgroup,
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "clusterDNS": [GATEWAY],
            "clusterDomain": "cluster.local",
            # Do not inherit the name servers of this machine, which are unreachable from here.
            "resolvConf": "",
        }

    def _ctr(self, *words):
        return self.station.place.run(debian.packages() / "usr/bin/ctr", f"--address={_SOCKET}", *words)

    def _answers(self):
        try:
            self._ctr("version")
        except AssertionError:
            return False
        return True

    def _process(self, program, *command):
        environment = {
            "PATH": debian.path(),
            "LD_LIBRARY_PATH": debian.libraries(),
            "HOME": str(self._folder),
        }
        log = self._folder / f"{program}.log"
        return Process(command, log, environment=environment, place=self.station.place)


def inside(plane):
    """Return the URL of the API server for nodes."""
    return f"https://{namespaces.GATEWAY}:{plane.port}"


# The intervals are short because tests wait for them. Images are not garbage-collected, because they cannot
# be pulled again.
_PACE = {
    "nodeLeaseDurationSeconds": 12,
    "nodeStatusUpdateFrequency": "5s",
    "imageGCHighThresholdPercent": 100,
    "imageGCLowThresholdPercent": 99,
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    "featureGates": {"KubeletCrashLoopBackOffMax": True},
    "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
}


def _toml(document, above=""):
    """Return a document as TOML. Lists must not contain tables; JSON and TOML write other lists alike."""
    plain = [
        f"{json.dumps(key)} = {json.dumps(each)}"
        for key, each in document.items()
        if not isinstance(each, Mapping)
    ]
    text = "\n".join([f"[{above}]" if above else "", *plain, ""])
    for key, each in document.items():
        if isinstance(each, Mapping):
            text += _toml(each, ".".join(filter(None, (above, json.dumps(key)))))
    return text
