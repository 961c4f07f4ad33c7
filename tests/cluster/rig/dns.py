"""The cluster's DNS: CoreDNS on the hub."""

from typing import Final

import httpx

from rig.control_plane import ControlPlane, free_ports
from rig.namespaces import GATEWAY
from rig.process import Process

_USER: Final = "cluster-dns"
_READS: Final = ("services", "pods", "namespaces")
# The DNS names of a job's pods change, so nothing is cached. Nothing is forwarded, because there is no
# uplink.
_COREFILE: Final = """
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


def start(plane: ControlPlane) -> Process:
    """Start CoreDNS, and return when it has synchronized with the API server."""
    _allow(plane)
    (port,) = free_ports(1)
    corefile = plane.folder / "Corefile"
    corefile.write_text(
        _COREFILE.format(
            address=GATEWAY, listen=plane.place.listen, port=port, kubeconfig=plane.certified(_USER)
        )
    )
    process = plane.enter(plane.process("coredns", (f"-conf={corefile}",)))
    process.wait_until(lambda: _is_ready(f"http://{plane.place.address}:{port}/ready"))
    return process


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.HTTPError:
        return False


def _allow(plane: ControlPlane) -> None:
    version, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    role = {
        "apiVersion": version,
        "kind": "ClusterRole",
        "metadata": {"name": _USER},
        "rules": [
            {"apiGroups": [""], "resources": list(_READS), "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ],
    }
    binding = {
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _USER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": _USER},
        "subjects": [{"apiGroup": group, "kind": "User", "name": _USER}],
    }
    plane.admin.apply(role)
    plane.admin.apply(binding)
